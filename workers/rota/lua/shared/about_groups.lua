-- Of a call that is about a group: what ends one is there, though no member may live.
-- with: in_use
any_members = true
