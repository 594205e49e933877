-- Replies to enqueue calls, kept for calls that are repeated. A nonce is `NAME NUMBER`, and `sent:NAME` has the nonce
-- and the results of the last call with that name. A client that received the reply uses the same name with the next
-- number, which overwrites the record. A client that did not receive the reply uses another name. If a nonce has no
-- number, the whole nonce is the name.
-- keys     sent:*
local SENT_MS = 60000
local function sent_key(nonce) return PREFIX .. 'sent:' .. (string.match(nonce, '^(%S+) %d+$') or nonce) end
local function is_reply_to(nonce, stored) return stored and string.sub(stored, 1, #nonce + 1) == nonce .. '\n' end
