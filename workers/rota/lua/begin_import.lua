#!lua flags=allow-oom
-- Begin an import, or continue one that was interrupted.
-- with: prefix imports
-- KEYS[1]  tasks
-- ARGV
--   file  digest of the file, or '' to prepare the namespace for a file that is not known yet
-- keys     meta tasks
-- returns  a status, and the number of lines that have been imported
--   ok     the namespace is closed to fleets until end_import
--   used   a fleet has opened the namespace; nothing was changed
--   other  the import of another file is unfinished; nothing was changed
-- Invariant: a namespace in which a fleet has run is never closed.
local file = ARGV[1]
local known, lines = unfinished_import()
if not known and redis.call('HEXISTS', META, 'protocol') == 1 then return { 'used', 0 } end
if known and known ~= '' and known ~= file then return { 'other', lines } end
redis.call('HSET', META, 'protocol', UNFINISHED)
note_lines(file, lines or 0)
return { 'ok', lines or 0 }
