-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- take.lua: take an exclusive lock if it is free and has no waiters.
--
-- KEYS  1 lock   2 queue  3 counter
-- ARGV  1 owner  2 px     3 terms
-- Returns the token; 0: nothing was done, use claim.lua.
-- Safe to repeat through claim.lua with again=1, which finds the grant: a second run returns 0.
--
-- Each call, function and number formatting costs the server several per cent of a plain SET, so
-- this script has as few as possible: no time in the record, see granted_ms() of functions.lua.
-- INCR comes first because it may fail.
local call, counter = redis.call, KEYS[3]
if call('EXISTS', KEYS[1], KEYS[2]) > 0 then return 0 end
local token = call('INCR', counter)
-- include: lib/start_counter.lua
call('PSETEX', KEYS[1], ARGV[2], ARGV[1] .. ' ' .. token .. ' 0 0' .. ARGV[3])
return token
