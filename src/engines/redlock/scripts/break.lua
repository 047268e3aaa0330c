-- break.lua: take the lock from its holder and hand it to the next live waiter.
--
-- KEYS  1 lock   2 queue  [3 fence  4 node]
-- ARGV  1 token ('0': whichever grant it is)
-- Returns 1 broken, 0 not held, -1 another grant.
-- Safe to repeat with a token: a second run finds another grant, or none.
local call, lock, queue, fence, node = redis.call, KEYS[1], KEYS[2], KEYS[3], KEYS[4]
-- include: lib/hand_over.lua

local holder = call('GET', lock)
if not holder then return 0 end
local token, granted = string.match(fence and call('GET', fence) or '', '^(%d+) (%x+)')
if ARGV[1] ~= '0' and (token ~= ARGV[1] or holder ~= '~h' and granted ~= holder) then return -1 end
call('DEL', lock)
if #holder == 40 then notify(holder, 'b ' .. holder) end
serve()
return 1
