-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- break.lua: take the lock from its holder and hand it to the next live waiter.
--
-- KEYS  1 lock   2 queue  3 broken  [4 fence  5 node]
-- ARGV  1 pid, host and command of the caller  2 token ('0': of those that are named)
--       [3 name of a holder  4 another one ...]  (lib/holder_name.lua)
-- Returns 1 broken, 0 not held, -1 another grant.
-- Safe to repeat, however late: what came after it has another token, and another name.
local call, lock, queue, broken, fence, node = redis.call, KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
-- include: lib/hand_over.lua
-- include: lib/holder_name.lua

local function is_named(holder, stored)
  local name = holder_name(holder, stored)
  for i = 3, #ARGV do
    if ARGV[i] == name then return true end
  end
end

local holder = call('GET', lock)
if not holder then return 0 end
local stored = fence and call('GET', fence)
if ARGV[2] == '0' then
  if not is_named(holder, stored) then return -1 end
else
  local token, granted = string.match(stored or '', '^(%d+) (%x+)')
  if token ~= ARGV[2] or holder ~= '~h' and granted ~= holder then return -1 end
end
call('DEL', lock)
if #holder == 40 then
  -- The message reaches a holder that is subscribed; any other finds the mark when it next looks.
  local marks, by = redis.pcall('GET', broken), string.match(ARGV[1], '^%d+ %S+') or ''
  marks = holder .. ' ' .. by .. '\n' .. (type(marks) == 'string' and marks or '')
  call('SET', broken, string.sub(marks, 1, 8192), 'PX', '3600000')
  notify(holder, 'b ' .. holder .. ' ' .. by)
end
serve()
return 1
