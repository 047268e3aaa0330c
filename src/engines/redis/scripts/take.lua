-- take.lua: the short way to an exclusive lock: take it if it is free and nobody waits.
--
-- KEYS  1 lock   2 queue  3 holder  4 counter
-- ARGV  1 owner  2 px     3 terms
-- Returns the token; 0: nothing was done, use claim.lua.
-- Safe to repeat through claim.lua with again=1, which finds the grant: a second run returns 0.
--
-- Each call, function and number made into text costs the server some per cent of all it does for a
-- plain SET: here are as few as will do. INCR comes first, as it may fail.
local call, owner = redis.call, ARGV[1]
if call('EXISTS', KEYS[1], KEYS[2]) > 0 then return 0 end
local token, time = call('INCR', KEYS[4]), call('TIME')
-- include: lib/start_counter.lua
call('PSETEX', KEYS[1], ARGV[2], owner)
call('PSETEX', KEYS[3], ARGV[2],
  owner .. ' ' .. token .. ' ' .. time[1] .. ' ' .. time[2] .. ARGV[3])
return token
