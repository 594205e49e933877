#!lua flags=allow-oom
-- End an import, so that a fleet can open the namespace.
-- with: prefix imports
-- KEYS[1]  tasks
-- ARGV
--   file      digest of the file
--   lines     number of its lines
--   protocol  protocol version of the caller
-- keys     meta tasks
-- returns  1, or 0 if the namespace is not importing this file or if lines are missing; in that case nothing was
--          changed
-- Invariant: a namespace is opened only after all lines of its file have been imported.
local file, lines, protocol = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local known, imported = unfinished_import()
if known ~= file or imported ~= lines then return 0 end
redis.call('HSET', META, 'protocol', protocol)
redis.call('HDEL', META, 'import')
return 1
