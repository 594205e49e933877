-- The import of a namespace. While it is unfinished, the field `protocol` of `meta` is `import`, so that no master
-- starts and no owner is registered, and the field `import` is `FILE LINES`: the digest of the file, '' if the
-- namespace is only prepared for an import, and the number of its lines that have been imported.
-- keys     meta
local META, UNFINISHED = PREFIX .. 'meta', 'import'

-- Return the digest and the number of lines of the unfinished import; nil if there is none.
local function unfinished_import()
  local known = redis.call('HMGET', META, 'protocol', 'import')
  local file, lines = string.match(known[2] or '', '^(%x*) (%d+)$')
  if known[1] == UNFINISHED and file then return file, tonumber(lines) end
end

local function note_lines(file, lines) redis.call('HSET', META, 'import', file .. ' ' .. lines) end
