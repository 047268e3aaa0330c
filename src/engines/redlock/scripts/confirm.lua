-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- confirm.lua: extend a key that is ours to the full lease, and report the grant it belongs to.
--
-- KEYS  1 lock   [2 fence  3 node]
-- ARGV  1 owner  2 px  [3 group id]
-- Returns {2, token, age of the grant in ms}; {2, 0, 0} where the fence is another's
--         {0, pttl, holder, -1}  another's
--         {-1, group, was, members, past}  the node was closed or is in another group, where no lease
--         may grow (see renew.lua)
-- Safe to repeat: a second run extends the same key again.
local call, lock, fence, node = redis.call, KEYS[1], KEYS[2], KEYS[3]

if node and ARGV[3] then
  local state = call('HMGET', node, 'group')
  if state[1] and string.sub(state[1], 1, 16) ~= ARGV[3] then
    -- include: lib/other_epoch.lua
  end
end

local holder, px = call('GET', lock), ARGV[2]
if holder ~= ARGV[1] then return {0, call('PTTL', lock), holder or '', -1} end
call('PEXPIRE', lock, px)
if node and tonumber(px) > tonumber(call('HGET', node, 'longest') or 0) then
  call('HSET', node, 'longest', px)
end
local token, granted = string.match(fence and call('GET', fence) or '', '^(%d+) (%x+)')
if granted ~= holder then return {2, 0, 0} end
return {2, tonumber(token), 604800000 - call('PTTL', fence)}
