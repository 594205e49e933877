-- For scripts about groups: define the functions for the end of a group, even if no group has a live member.
-- with: in_use
-- sets: any_members
any_members = true
