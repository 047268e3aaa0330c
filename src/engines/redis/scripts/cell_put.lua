-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- cell_put.lua: put a value into a cell, if its guard and its version allow it.
--
-- KEYS  1 guard  2 cell
-- ARGV  1 value  2 token ('0': none)  3 issuer ('': not given)  4 strict (1)
--       5 the version that it must have ('0': there must be none; '': any)
--       6 milliseconds until the cell and its guard expire ('': never)
-- Returns {0, version, token, issuer} as they are now; refused {1 stale | 2 foreign | 3 conflict |
-- 4 a damaged guard, version, token, issuer} as they were.
-- Not safe to repeat without a version: the value could overwrite a later one.
--
-- The usual put has three calls and makes no function: each costs some per cent of a plain SET.
-- The field keep says that the guard expires; asking for its TTL would be a fourth call.
local call, guard, cell = redis.call, KEYS[1], KEYS[2]
local token, issuer, wanted = ARGV[2], ARGV[3], ARGV[5]
local seen = call('HMGET', guard, 'token', 'issuer', 'version', 'keep')
local highest, from, version = seen[1] or '0', seen[2] or '', seen[3]
if not version and call('EXISTS', cell) == 1 then version = '1' end
local news = token ~= highest or issuer ~= '' and issuer ~= from
if news or ARGV[4] == '1' then
  -- include: ../guard/lib/verdict.lua
  local refused = verdict(token, issuer, ARGV[4] == '1', highest, from)
  if refused then
    local outcomes = {STALE = 1, FOREIGN = 2, CORRUPT = 4}
    return {outcomes[refused], call('EXISTS', cell) == 1 and version or '0', highest, from}
  end
end
local replaces = wanted ~= '' and wanted ~= '0'
local fits = wanted == '' or wanted == '0' and call('EXISTS', cell) == 0
  or replaces and wanted == version and call('SET', cell, ARGV[1], 'XX')
if not fits then
  return {3, call('EXISTS', cell) == 1 and version or '0', highest, from}
end
-- Before SET, as it fails if the version is damaged. A value set by hand has version 1, unstored.
version = call('HINCRBY', guard, 'version', version and not seen[3] and 2 or 1)
if token ~= '0' and issuer ~= '' then from = issuer end
if token ~= '0' and news then call('HSET', guard, 'token', token, 'issuer', from) end
if not replaces then call('SET', cell, ARGV[1]) end
if ARGV[6] ~= '' then
  -- The version must be larger than that of a cell of this name that has expired: it is at least the
  -- time. No cell has a million puts in each second, so its versions stay behind the clock.
  local time = call('TIME')
  local now = time[1] .. string.format('%06d', time[2])
  if version < tonumber(now) then version = now end
  call('HSET', guard, 'version', version, 'keep', '1')
  -- Both at the same moment, which may be no earlier.
  local ends = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[6])
  call('PEXPIREAT', guard, ends)
  call('PEXPIREAT', cell, ends)
elseif seen[4] then
  call('HDEL', guard, 'keep')
  call('PERSIST', guard)
end
return {0, version, token, from}
