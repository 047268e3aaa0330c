-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- record.lua: record the group's size and members on a node where an older release has left none.
--
-- KEYS  1 node
-- ARGV  1 group  2 members  3 n
-- Returns the node's report, first 1, or 0 if it is in another epoch or has a record.
-- Safe to repeat: a second run finds the record.
-- include: lib/report.lua
local state = redis.call('HMGET', KEYS[1], 'group', 'n')
if state[1] ~= ARGV[1] or state[2] then return report(0) end
redis.call('HSET', KEYS[1], 'seats', ARGV[2], 'n', ARGV[3])
return report(1)
