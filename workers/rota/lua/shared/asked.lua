-- The table `asked` has the arguments of this script. The script fills `ARGV` with the arguments of the transition that
-- it includes.
local asked, ARGV = ARGV, {}
