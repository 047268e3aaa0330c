-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- queue.lua: claim without fences, where a plain SET NX has failed: take the key or join the queue.
--
-- KEYS  1 lock   2 queue
-- ARGV  1 owner  2 px  3 entry  4 wait  5 again
-- Returns {2, 0}  taken
--         {0, pttl, holder, place in the queue}
-- Safe to repeat with again=1: a second run finds the key taken, or the entry in the queue.
local call, lock, queue, fence, node = redis.call, KEYS[1], KEYS[2]
local owner, px, entry, wait, again = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1', ARGV[5] == '1'
-- include: lib/take_in_turn.lua
local refused = take_in_turn()
if refused then return refused end
return {2, 0}
