-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- give.lua: release an exclusive lock that has no waiters and needs no hold or delay.
--
-- KEYS  1 lock   2 queue
-- ARGV  1 owner
-- Returns 1 if it was released; 0: nothing was done, use release.lua.
-- Safe to repeat: a second run finds another owner.
local call = redis.call
if string.sub(call('GET', KEYS[1]) or '', 1, 40) ~= ARGV[1] then return 0 end
if call('EXISTS', KEYS[2]) == 1 then return 0 end
return call('DEL', KEYS[1])
