-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- cell_list.lua: several cells, with the sizes of their values instead of the values.
--
-- KEYS  1 guard  2 cell  [3 guard  4 cell ...]
-- Returns for each {0, version, token, issuer, size}; version 0: there is none; token '': its guard
-- holds something else.
-- Safe to repeat: it changes nothing.
local found = {}
for i = 1, #KEYS, 2 do
  local seen = redis.pcall('HMGET', KEYS[i], 'token', 'issuer', 'version')
  if seen.err then seen = {'', '', '1'} end
  local version = redis.call('EXISTS', KEYS[i + 1]) == 1 and (seen[3] or '1') or '0'
  local size = redis.pcall('STRLEN', KEYS[i + 1])
  if type(size) ~= 'number' then version = '0' end
  table.insert(found, {0, version, seen[1] or '0', seen[2] or '', size})
end
return found
