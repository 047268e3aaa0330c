-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- take.lua: take an exclusive lock if it is free and has no waiters.
--
-- KEYS  1 lock   2 queue  3 holder  4 counter
-- ARGV  1 owner  2 px     3 terms
-- Returns the token; 0: nothing was done, use claim.lua.
-- Safe to repeat through claim.lua with again=1, which finds the grant: a second run returns 0.
--
-- Each call, function and number formatting costs the server several per cent of a plain SET, so
-- this script has as few as possible. INCR comes first because it may fail.
local call, owner = redis.call, ARGV[1]
if call('EXISTS', KEYS[1], KEYS[2]) > 0 then return 0 end
local token, time = call('INCR', KEYS[4]), call('TIME')
-- include: lib/start_counter.lua
call('PSETEX', KEYS[1], ARGV[2], owner)
call('PSETEX', KEYS[3], ARGV[2],
  owner .. ' ' .. token .. ' ' .. time[1] .. ' ' .. time[2] .. ARGV[3])
return token
