-- Make following.lua define the functions that end a group, even if no group has a live member. Scripts about groups
-- include this file.
-- with: in_use
-- sets: any_members
any_members = true
