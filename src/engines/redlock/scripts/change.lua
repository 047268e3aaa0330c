-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- change.lua: move a node from one group name to the next one (proposal, epoch or mark).
--
-- KEYS  1 node
-- ARGV  1 from  2 to  3 was ('': the node's own)  4 members ('': as they are)  5 n
-- Returns the node's report, first 1, or 0 if it was not in `from`, and is as before.
-- Safe to repeat: a second run finds another group.
-- include: lib/report.lua
local state = redis.call('HMGET', KEYS[1], 'group', 'was', 'next')
if state[1] ~= ARGV[1] then return report(0) end

-- The epoch that ends is put on record as older, at most 328 bytes of them: the latest eight or
-- more. Proposals are not recorded.
local was = state[2] or ''
if ARGV[3] ~= '' then
  was = ARGV[3]
elseif string.find(state[1], '.', 1, true) then
  was = string.sub(string.gsub(state[1], '^#', '') .. ' ' .. was, 1, 328)
end

-- A node that has agreed to a group of another size (`next`) stays closed in every later epoch.
redis.call('HSET', KEYS[1], 'group', (state[3] and '#' or '') .. ARGV[2], 'was', was)
if ARGV[4] ~= '' then redis.call('HSET', KEYS[1], 'seats', ARGV[4], 'n', ARGV[5]) end
return report(1)
