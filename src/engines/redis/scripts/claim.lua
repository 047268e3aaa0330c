-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- claim.lua: take the lock in turn, or join the queue.
--
-- KEYS  1 lock   2 queue  3 counter  4 members  5 records  6 gap
-- ARGV  1 owner  2 mode   3 px      4 terms    5 slots    6 wait     7 again
--       8 gaps (1: leave gaps)  9 ms for which another client's key was in the way
-- Returns {1, token}, or {0, ms, place in the queue, another client's value}, see status.lua.
-- Safe to repeat with again=1: a second run finds the grant, or the entry in the queue.
--
-- Waiters are served first, and a clock that is set back does not put a new claim before older
-- ones. Where a new claim can't be granted, because the lock is taken and others wait or its holder
-- is exclusive, it only joins the queue, which needs none of the functions.
-- include: lib/keys.lua
local owner, mode, px, terms, slots = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local entry = owner .. ' ' .. mode .. ' ' .. px .. terms
local again = ARGV[7] == '1'

-- When the last waiter came, or nil.
local function time_of_last()
  local last = call('ZREVRANGE', queue, '0', '1', 'WITHSCORES')
  return tonumber(last[last[1] == '~gap' and 4 or 2])
end

-- The first that joins in a minute keeps the queue alive; so does each waiter that asks again.
local function enqueue(last)
  local time = call('TIME')
  local at = time[1] * 1000000 + time[2]
  local first = not last or math.floor(last / 60000000) ~= math.floor(at / 60000000)
  if last and last >= at then at = last + 1 end
  if ARGV[8] == '1' then
    call('ZADD', queue, 'NX', at, entry, at + 2000000, '~gap')
  else
    call('ZADD', queue, 'NX', at, entry)
  end
  if first then call('PEXPIRE', queue, '3600000') end
end

if mode == 'x' and ARGV[6] == '1' and not again then
  local ms, last = call('PTTL', lock), time_of_last()
  if ms ~= -2 and last then
    enqueue(last)
    return {0, ms, call('ZRANK', queue, entry), ''}
  end
end
local stored = call('GET', lock)
-- include: lib/stored.lua
-- include: lib/status.lua
if value and value ~= '~S' and value ~= '~N' and ARGV[6] == '1' and not again then
  enqueue(time_of_last())
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
  return {1, grant(owner, mode, px, terms)}
end
if ARGV[6] == '1' then
  if again and call('ZSCORE', queue, entry) then
    call('PEXPIRE', queue, '3600000')
  else
    enqueue(time_of_last())
  end
end
local reply = status(entry)
if not value then reply[2] = math.max(0, read_gap() - now()) end
return reply
