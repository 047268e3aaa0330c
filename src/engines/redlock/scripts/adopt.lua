-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- adopt.lua: take a marked node into the group.
--
-- KEYS  1 node
-- ARGV  1 group  2 highest fence  3 longest lease  4 from (the mark)  5 was  6 members  7 n  8 past
-- Returns the node's report, first 1, or 0 if it no longer has the mark, and is as before.
-- Safe to repeat: a second run finds another group.
--
-- The node is quiet for the longest lease that it may have forgotten or that others have granted.
-- The node's own values are kept where they are larger. No fence that it still has counts for less
-- than `floor`: a majority that missed a grant of the old group could be one of the new group.
-- include: lib/report.lua
local call, node = redis.call, KEYS[1]

local state = call('HMGET', node, 'group', 'highest', 'longest')
if state[1] ~= ARGV[4] then return report(0) end
local time = call('TIME')
local highest, longest = ARGV[2], ARGV[3]
if tonumber(state[2] or 0) > tonumber(highest) then highest = state[2] end
if tonumber(state[3] or 0) > tonumber(longest) then longest = state[3] end
local quiet = time[1] * 1000 + math.floor(time[2] / 1000) + longest
call('HDEL', node, 'next')
call('HSET', node, 'group', ARGV[1], 'highest', highest, 'longest', longest, 'was', ARGV[5],
  'seats', ARGV[6], 'n', ARGV[7], 'past', ARGV[8], 'quiet', string.format('%.0f', quiet),
  'floor', highest)
return report(1)
