-- What was asked, and the arguments of the transition that is taken along, which the script fills in.
local asked, ARGV = ARGV, {}
