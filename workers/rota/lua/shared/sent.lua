-- Replies of enqueues, for calls that are repeated. A nonce is `NAME NUMBER`, and `sent:NAME` has the nonce and the
-- results of the last call with that name. A client that received the reply uses the same name with the next number,
-- which overwrites the record. A client that did not receive it uses another name. A nonce without a number is used as
-- a name as a whole.
-- keys     sent:*
local SENT_MS = 60000
local function sent_key(nonce) return PREFIX .. 'sent:' .. (string.match(nonce, '^(%S+) %d+$') or nonce) end
local function is_reply_to(nonce, stored) return stored and string.sub(stored, 1, #nonce + 1) == nonce .. '\n' end
