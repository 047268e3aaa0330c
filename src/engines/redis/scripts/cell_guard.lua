-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- cell_guard.lua: remove a cell, or change its guard alone.
--
-- KEYS  1 guard  2 cell
-- ARGV  1 remove | raise | reset  2 token ('0': none)  3 issuer ('': not given)  4 strict (1)
--       5 the version that it must have ('0': there must be none; '': any)
-- Returns {0, version, token, issuer} as they are now; refused {1 stale | 2 foreign | 3 conflict |
-- 4 a damaged guard, version, token, issuer} as they were.
-- Safe to repeat, unless it is strict.
--
-- A server that is out of memory lets a script add something only after the script has changed
-- something: the deletion of a field that no guard has counts as a change.
local call, guard, cell, verb = redis.call, KEYS[1], KEYS[2], ARGV[1]
local token, issuer, strict, wanted = ARGV[2], ARGV[3], ARGV[4] == '1', ARGV[5]
-- include: ../guard/lib/verdict.lua
redis.pcall('HDEL', guard, '')
local seen = call('HMGET', guard, 'token', 'issuer', 'version')
local highest, from = seen[1] or '0', seen[2] or ''
local version = call('EXISTS', cell) == 1 and (seen[3] or '1') or '0'

if verb == 'reset' then
  call('HDEL', guard, 'token', 'issuer')
  if token ~= '0' or issuer ~= '' then call('HSET', guard, 'token', token, 'issuer', issuer) end
  return {0, version, token, issuer}
end
local refused = verdict(token, issuer, strict, highest, from)
if refused then
  local outcomes = {STALE = 1, FOREIGN = 2, CORRUPT = 4}
  return {outcomes[refused], version, highest, from}
end
if wanted ~= '' and wanted ~= version then return {3, version, highest, from} end
if verb == 'remove' and version ~= '0' then
  -- The version stays behind: the next value must have a larger one.
  if not seen[3] then call('HSET', guard, 'version', version) end
  call('DEL', cell)
  version = '0'
end
if token ~= '0' and (token ~= highest or issuer ~= '' and issuer ~= from) then
  if issuer ~= '' then from = issuer end
  call('HSET', guard, 'token', token, 'issuer', from)
end
return {0, version, token, from}
