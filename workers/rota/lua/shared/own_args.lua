-- Keep the arguments of this script in the table `own_args`, because the script fills `ARGV` with the arguments of the
-- transition that it includes.
local own_args, ARGV = ARGV, {}
