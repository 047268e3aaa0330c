-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- look.lua: check whether a waiter should send its claim again.
--
-- KEYS  as for claim.lua
-- ARGV  1 owner  2 mode  3 px  4 terms  5 slots
-- Returns {1}: send it; or {0, ms, place in the queue, another client's value}, see status.lua.
-- Safe to repeat: it changes nothing.
--
-- A waiter that only the waiters ahead keep from the lock sends its claim again: one of them may
-- have died, which only claim.lua can detect. The ZREM removes nothing: a replica refuses it, and
-- its client then looks for the primary.
-- include: lib/keys.lua
local stored = call('GET', lock)
-- include: lib/stored.lua
-- include: lib/status.lua
local owner, mode, slots = ARGV[1], ARGV[2], tonumber(ARGV[5])
local entry = owner .. ' ' .. mode .. ' ' .. ARGV[3] .. ARGV[4]

call('ZREM', queue, '')
if not call('ZSCORE', queue, entry) then return {1} end
local reply = status(entry)
if not value then
  local time, till = call('TIME'), string.match(call('GET', gap) or '', '^(%d+)')
  local left = (till or 0) - time[1] * 1000 - math.floor(time[2] / 1000)
  if left <= 0 then return {1} end
  reply[2] = left
elseif value == '~S' and mode == 's' or reply[2] == 0 then
  return {1}
elseif value == '~N' and mode == 'n' and call('ZCARD', members) < slots then
  return {1}
end
return reply
