-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- claim.lua: phase 1 on one node: take the key if it is free and has no waiters; read the fence.
--
-- KEYS  1 lock   2 fence  3 queue  4 node
-- ARGV  1 owner  2 px     3 group  4 guess (a token; 0: none)  5 the fence for it: guess, entry
--       6 wait   7 again  8 the highest fence to be on record for it
-- Returns guess  taken, and the guess was larger than the fence: it is the fence now
--         {1, fence}  taken
--         {0, pttl, holder, place in the queue}  another's; holder ~q: the node is quiet
--         {-1, group, was, members, past}  the node is in another epoch
-- Safe to repeat with again=1: a second run finds the key taken, or the entry in the queue.
--
-- Lua creates functions anew in each run, so the common case comes before them. It returns a number
-- and joins no texts: a table, or a new text, costs a server about as much as a call.
local call, lock, fence, queue, node = redis.call, KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, px = ARGV[1], ARGV[2]

local state = call('HMGET', node, 'group', 'highest', 'longest', 'quiet', 'floor')
if state[1] ~= ARGV[3] then
  -- include: lib/other_epoch.lua
end

-- The longest lease decides how long an adopted node stays quiet.
if state[3] ~= px and tonumber(px) > tonumber(state[3] or 0) then
  call('HSET', node, 'longest', px)
end

if state[4] or ARGV[7] == '1' or call('EXISTS', queue) == 1
    or not call('SET', lock, owner, 'NX', 'PX', px) then
  local wait, again, entry = ARGV[6] == '1', ARGV[7] == '1', string.match(ARGV[5], ' (.*)$')
  -- include: lib/take_in_turn.lua
  local left = quiet_ms(state[4])
  if left then return {0, left, '~q', enqueue()} end
  local refused = take_in_turn()
  if refused then return refused end
end

local stored = call('GET', fence)
local number, floor = string.match(stored or '', '^%d+') or state[2] or '0', state[5]
-- include: lib/floor.lua
local guess = tonumber(ARGV[4])
if guess <= tonumber(number) then
  -- As in grant() of hand_over.lua: phase 2 must compare with the fence that is reported here.
  if not stored then call('PSETEX', fence, px, number) end
  return {1, tonumber(number)}
end
call('PSETEX', fence, '604800000', ARGV[5])
-- A name without a fence gets no number ahead: the next such name would have to exceed it.
if not state[2] or guess > tonumber(state[2]) then
  call('HSET', node, 'highest', stored and ARGV[8] or ARGV[4])
end
return guess
