-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- release.lua: give the key back and hand it to the next live waiter; or withdraw from the queue.
--
-- KEYS  1 lock   2 queue  [3 fence  4 node]
-- ARGV  1 owner  [2 entry ('': not in the queue)  3 ms that are left of hold_at_least or lock-delay
--       4 without fences, if anything is left: ms since the grant  5 pid, host and command]
-- Returns 1 if the key was ours, else why it was not (lib/loss.lua).
-- Safe to repeat: a second run finds another owner and no entry.
local call, lock, queue, fence, node = redis.call, KEYS[1], KEYS[2], KEYS[3], KEYS[4]

local holder = call('GET', lock)
local mine = holder == ARGV[1]
if mine and not ARGV[3] and call('EXISTS', queue) == 0 then
  call('DEL', lock)
  return 1
end
-- include: lib/hand_over.lua

if (ARGV[2] or '') ~= '' then call('LREM', queue, 1, ARGV[2]) end
if not mine then
  -- include: lib/loss.lua
  local reason = loss(ARGV[1], holder, string.gsub(queue, 'queue$', 'broken'))
  if not holder then serve() end
  return reason
end
if ARGV[3] then
  -- The rest of hold_at_least has no owner. A server out of memory lets a script add something only
  -- after it has changed something: PEXPIRE first.
  call('PEXPIRE', lock, ARGV[3])
  local kept = '~h'
  if ARGV[5] then
    local time = call('TIME')
    local since = time[1] * 1000 + math.floor(time[2] / 1000) - ARGV[4]
    kept = '~h ' .. string.format('%.0f', since) .. ' ' .. ARGV[5]
  end
  call('SET', lock, kept, 'PX', ARGV[3])
  notify_next(ARGV[3])
elseif not serve() then
  call('DEL', lock)
end
return 1
