-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- follow.lua: move a node that was away to the present epoch, if its own is on record as older.
--
-- KEYS  1 node
-- ARGV  1 group  2 was  3 members
-- Returns 1 if it has moved, else 0.
-- Safe to repeat: a second run finds the new epoch.
local state = redis.call('HMGET', KEYS[1], 'group', 'seat')
if not state[1] then return 0 end
if not string.find(' ' .. ARGV[2] .. ' ', ' ' .. state[1] .. ' ', 1, true) then return 0 end
if ARGV[3] ~= '' then
  -- A node that was replaced in the group must not come back beside its replacement.
  local label = ' ' .. (state[2] or '?') .. ' '
  if not string.find(' ' .. ARGV[3] .. ' ', label, 1, true) then return 0 end
  redis.call('HSET', KEYS[1], 'seats', ARGV[3])
end
redis.call('HSET', KEYS[1], 'group', ARGV[1], 'was', ARGV[2])
return 1
