-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- check.lua: whether an owner still holds the lock, and if not, why.
--
-- KEYS  as for claim.lua, and 7 broken
-- ARGV  1 owner  2 mode
-- Returns 1, or the reason (lib/loss.lua).
-- Safe to repeat: it changes nothing.
--
-- Each client sends it once, after its first grant: it does without the functions, to be short.
-- include: lib/keys.lua
local stored = call('GET', lock)
-- include: lib/stored.lua
local owner, mode, broken = ARGV[1], ARGV[2], KEYS[7]
-- include: lib/loss.lua

if value == owner and mode == 'x' then return 1 end
if value == '~' .. string.upper(mode) then
  local time, ends = call('TIME'), call('ZSCORE', members, owner)
  if ends and ends - time[1] * 1000 - math.floor(time[2] / 1000) > 0 then return 1 end
end
-- A replica that lags may not have the grant yet. It refuses ZREM, so it never reports a loss.
call('ZREM', queue, '')
return loss(owner, mode)
