-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- resume.lua: take over a grant by its owner value.
--
-- KEYS  as for claim.lua
-- ARGV  1 owner  2 ttl ('': as requested before)  3 ttl where there is no record
-- Returns {token, mode, ttl, hold, delay, slots, ms since the grant}; 0: the owner does not hold it.
-- Safe to repeat: a second run finds the same grant.
-- include: lib/keys.lua
local stored = call('GET', lock)
-- include: lib/stored.lua
-- include: lib/functions.lua
local owner, mode = ARGV[1], 'x'

drop_expired()
if is_shared() then mode = string.lower(string.sub(value, 2)) end
local record = record_of(owner, mode)
if not record then return 0 end

local token, ttl, hold, delay, slots = 0, ARGV[3], 0, 0, 0
local time = now()
local began = time
if record == true then
  token = next_token()
else
  began = granted_ms(record)
  token, ttl, hold, delay, slots =
    string.match(record, '^(%d+) %d+ %d+ (%d+) (%d+) (%d+) (%d+)$')
end
if ARGV[2] ~= '' then ttl = ARGV[2] end
local px = math.max(ttl + delay, hold - (time - began))
record = as_text(token) .. ' ' .. math.floor(began / 1000) .. ' ' .. began % 1000 * 1000
  .. ' ' .. ttl .. ' ' .. hold .. ' ' .. delay .. ' ' .. slots
extend(owner, mode, px)
if mode == 'x' then
  call('SET', lock, owner .. ' ' .. record, 'PX', px)
else
  call('HSET', records, owner, record)
end
return {tonumber(token), mode, tonumber(ttl), tonumber(hold), tonumber(delay), tonumber(slots),
  math.max(0, time - began)}
