-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- claim.lua: take the lock in turn, or join the queue.
--
-- KEYS  1 lock   2 queue  3 holder  4 counter  5 members  6 records  7 gap
-- ARGV  1 owner  2 mode   3 px      4 terms    5 slots    6 wait     7 again
--       8 gaps (1: leave gaps)  9 ms for which another client's key was in the way
-- Returns {1, token}, or {0, ms, place in the queue, another client's value}, see status.lua.
-- Safe to repeat with again=1: a second run finds the grant, or the entry in the queue.
--
-- Waiters are served first, and a clock that is set back does not put a new claim before older
-- ones. Behind an exclusive holder a new claim can't be granted: it only joins the queue, which
-- needs none of the functions.
-- include: lib/keys.lua
-- include: lib/status.lua
local owner, mode, px, terms, slots = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local entry = owner .. ' ' .. mode .. ' ' .. px .. terms
local again = ARGV[7] == '1'

local function enqueue()
  local time = call('TIME')
  local at, last = time[1] * 1000000 + time[2], call('ZREVRANGE', queue, '0', '1', 'WITHSCORES')
  local i = last[1] == '~gap' and 4 or 2
  if last[i] and last[i] + 0 >= at then at = last[i] + 1 end
  if ARGV[8] == '1' then
    call('ZADD', queue, 'NX', at, entry, at + 2000000, '~gap')
  else
    call('ZADD', queue, 'NX', at, entry)
  end
  call('PEXPIRE', queue, '3600000')
end

if value and value ~= '~S' and value ~= '~N' and ARGV[6] == '1' and not again then
  enqueue()
  return status(entry)
end
-- include: lib/functions.lua

drop_expired()
local behind = tonumber(ARGV[9])
if behind > 0 then
  local time = now()
  redis.pcall('SET', gap, as_text(read_gap()) .. ' ' .. as_text(time), 'PX', '30000')
  if ARGV[8] == '1' and call('ZSCORE', queue, '~gap') then
    call('ZADD', queue, (time + math.max(200, math.min(behind, 10000))) * 1000, '~gap')
  end
end
if again or fits(mode, slots) then serve(owner) end
local token = again and token_of(record_of(owner, mode))
if token then
  extend(owner, mode, tonumber(px))
  return {1, token}
end
if fits(mode, slots) and call('EXISTS', queue) == 0 then
  return {1, grant(owner, mode, px, px, terms)}
end
if ARGV[6] == '1' and not (again and call('ZSCORE', queue, entry)) then enqueue() end
local reply = status(entry)
if not value then reply[2] = math.max(0, read_gap() - now()) end
return reply
