-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- doctor_lease.lua: the longest remaining lease of the locks with a prefix.
--
-- KEYS  none
-- ARGV  1 pattern of their keys
-- Returns milliseconds; 0: none was seen.
-- Safe to repeat: it changes nothing.
--
-- Never scans all keys of a large server. A key with a brace is not a lock, but beside one.
local cursor, longest = '0', 0
for _ = 1, 16 do
  local reply = redis.call('SCAN', cursor, 'MATCH', ARGV[1], 'COUNT', 256)
  for _, key in ipairs(reply[2]) do
    if string.sub(key, 1, 1) ~= '{' then
      longest = math.max(longest, redis.call('PTTL', key))
    end
  end
  cursor = reply[1]
  if cursor == '0' then break end
end
return longest
