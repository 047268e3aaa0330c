-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- check.lua: whether an owner still has the lock's key, and if not, why.
--
-- KEYS  1 lock   2 broken
-- ARGV  1 owner
-- Returns 1, or the reason (lib/loss.lua).
-- Safe to repeat: it changes nothing.
-- include: lib/loss.lua
local holder = redis.call('GET', KEYS[1])
if holder == ARGV[1] then return 1 end
return loss(ARGV[1], holder, KEYS[2])
