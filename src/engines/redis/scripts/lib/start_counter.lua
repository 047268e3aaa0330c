-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- start_counter.lua: the first value of a counter that INCR has created. Needs call, counter, token.
--
-- It is the server's time in tenths of a millisecond: larger than any token before a FLUSHALL, and
-- than the counters that earlier versions kept for each name. It has fourteen digits, the most that
-- Lua's .. writes exactly.
if token < 1e12 then
  local time = call('TIME')
  token = math.max(1e12, time[1] * 10000 + math.floor(time[2] / 100))
  call('SET', counter, token)
end
