-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- yield.lua: give way after a split vote: hand the key over and wait at the front of the queue.
--
-- KEYS  1 lock   2 queue  [3 fence  4 node]
-- ARGV  1 owner  2 to ('': the next waiter)  3 entry
-- Returns 1, or 0 where the key was not ours.
-- Safe to repeat: a second run finds another owner.
local call, lock, queue, fence, node = redis.call, KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local to = ARGV[2]

if call('GET', lock) ~= ARGV[1] then return 0 end
call('PEXPIRE', lock, '1000')
-- include: lib/hand_over.lua

if to ~= '' then
  for _, entry in ipairs(call('LRANGE', queue, 0, 63)) do
    if string.sub(entry, 1, 40) == to then
      call('LREM', queue, 1, entry)
      break
    end
  end
end
if not (to ~= '' and grant(to, 'y')) and not serve() then call('DEL', lock) end
call('LPUSH', queue, ARGV[3])
call('PEXPIRE', queue, '3600000')
return 1
