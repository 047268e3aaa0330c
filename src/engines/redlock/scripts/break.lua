-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- break.lua: take the lock from its holder and hand it to the next live waiter.
--
-- KEYS  1 lock   2 queue  3 broken  [4 fence  5 node]
-- ARGV  1 token ('0': whichever grant it is)  2 pid, host and command of the caller
-- Returns 1 broken, 0 not held, -1 another grant.
-- Safe to repeat with a token: a second run finds another grant, or none.
local call, lock, queue, broken, fence, node = redis.call, KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
-- include: lib/hand_over.lua

local holder = call('GET', lock)
if not holder then return 0 end
local token, granted = string.match(fence and call('GET', fence) or '', '^(%d+) (%x+)')
if ARGV[1] ~= '0' and (token ~= ARGV[1] or holder ~= '~h' and granted ~= holder) then return -1 end
call('DEL', lock)
if #holder == 40 then
  -- The message reaches a holder that is subscribed; any other finds the mark when it next looks.
  local marks, by = redis.pcall('GET', broken), string.match(ARGV[2], '^%d+ %S+') or ''
  marks = holder .. ' ' .. by .. '\n' .. (type(marks) == 'string' and marks or '')
  call('SET', broken, string.sub(marks, 1, 8192), 'PX', '3600000')
  notify(holder, 'b ' .. holder .. ' ' .. by)
end
serve()
return 1
