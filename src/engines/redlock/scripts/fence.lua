-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- fence.lua: phase 2 on one node: write the token where the key is still ours and the fence smaller.
--
-- KEYS  1 lock   2 fence  3 node
-- ARGV  1 owner  2 px     3 group  4 token  5 the fence for it: token, entry
-- Returns token  written: a vote
--         {1, fence}  the key is ours, but the fence is not smaller
--         {0, pttl, holder, -1}  another's; holder ~q: the node is quiet
--         {-1, group, was, members, past}  the node is in another epoch
-- Safe to repeat: a second run finds the token written, reports it as the fence, and changes nothing.
local call, lock, fence, node = redis.call, KEYS[1], KEYS[2], KEYS[3]

local state = call('HMGET', node, 'group', 'highest', 'quiet', 'floor')
if state[1] ~= ARGV[3] then
  -- include: lib/other_epoch.lua
end
if state[3] then
  -- include: lib/quiet.lua
  local left = quiet_ms(state[3])
  if left then return {0, left, '~q', -1} end
end

local holder = call('GET', lock)
if holder ~= ARGV[1] then return {0, call('PTTL', lock), holder or '', -1} end
local number, floor = string.match(call('GET', fence) or '', '^%d+') or state[2] or '0', state[4]
-- include: lib/floor.lua
local token = tonumber(ARGV[4])
if token <= tonumber(number) then return {1, tonumber(number)} end
call('PEXPIRE', lock, ARGV[2])
call('PSETEX', fence, '604800000', ARGV[5])
if not state[2] or token > tonumber(state[2]) then call('HSET', node, 'highest', ARGV[4]) end
return token
