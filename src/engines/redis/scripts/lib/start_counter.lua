-- start_counter.lua: where a counter starts, after INCR has made it. Needs call, token, time.
--
-- At the server's clock, in tenths of a millisecond: above whatever was counted before a FLUSHALL,
-- and above the counters that earlier versions kept for each name. It has fourteen digits, which is
-- what Lua's .. writes exactly.
if token < 1e12 then
  token = math.max(1e12, time[1] * 10000 + math.floor(time[2] / 100))
  call('SET', KEYS[4], token)
end
