-- release.lua: give the key back and hand it to the next live waiter; or withdraw from the queue.
--
-- KEYS  1 lock   2 queue  [3 fence  4 node]
-- ARGV  1 owner  2 ms that are left of hold_at_least or lock-delay  3 entry ('': not in the queue)
-- Returns 1 if the key was ours, 0 if it was not.
-- Safe to repeat: a second run finds another owner and no entry.
local call, lock, queue, fence, node = redis.call, KEYS[1], KEYS[2], KEYS[3], KEYS[4]

local holder = call('GET', lock)
local mine = holder == ARGV[1]
if mine and ARGV[2] == '0' and call('EXISTS', queue) == 0 then
  call('DEL', lock)
  return 1
end
-- include: lib/hand_over.lua

if ARGV[3] ~= '' then call('LREM', queue, 1, ARGV[3]) end
if not mine then
  if not holder then serve() end
  return 0
end
if ARGV[2] ~= '0' then
  -- The rest of hold_at_least has no owner. A server out of memory lets a script add something only
  -- after it has changed something: PEXPIRE first.
  call('PEXPIRE', lock, ARGV[2])
  call('SET', lock, '~h', 'PX', ARGV[2])
  notify_next(ARGV[2])
elseif not serve() then
  call('DEL', lock)
end
return 1
