-- The table `own_args` has the arguments of this script. The script fills `ARGV` with the arguments of the transition
-- that it includes.
local own_args, ARGV = ARGV, {}
