-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- close.lua: have a node agree to the next group, which has another size.
--
-- From here on the node gives no votes, keys or renewals in its group.
--
-- KEYS  1 node
-- ARGV  1 group  2 next group and its members
-- Returns the node's report, first 1, or 0 if it is in another group.
-- Safe to repeat: a second run writes the same again.
-- include: lib/report.lua
local group = redis.call('HGET', KEYS[1], 'group')
if group ~= ARGV[1] and group ~= '#' .. ARGV[1] then return report(0) end
redis.call('HSET', KEYS[1], 'group', '#' .. ARGV[1], 'next', ARGV[1] .. ' ' .. ARGV[2])
return report(1)
