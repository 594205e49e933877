-- Answers of enqueues, for calls that are sent again: `sent:NAME` has the nonce of the last call of that name, and its
-- words. A nonce is `NAME NUMBER`: who was answered gives its next call the same name and the next number, so that one
-- record is written over and over, and who was not takes another name. A nonce without a number is a name for itself.
-- keys     sent:*
local SENT_MS = 60000
local function sent_key(nonce) return PREFIX .. 'sent:' .. (string.match(nonce, '^(%S+) %d+$') or nonce) end
local function is_answer(nonce, told) return told and string.sub(told, 1, #nonce + 1) == nonce .. '\n' end
