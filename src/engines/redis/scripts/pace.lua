-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- pace.lua: reserve the next start of a pace, by the rules of recipes/pace_rule.c.
--
-- KEYS  1 pace: hash of terms, seen, ahead, n (how many were reserved), last (the latest end), and
--       of the ends of the latest reservations by n modulo starts; expires when all are long over
-- ARGV  1 starts  2 in so many microseconds  3 burst ('0': exactly that)
--       4 tolerance  5 time for the answer  6 longest wait, all in microseconds
-- Returns {0 reserved | 1 too far away, now, start}; {2, now, until, terms} if others are in use; {3}
-- if what is stored is damaged.
-- Safe to repeat: it costs a start.
local call, key = redis.call, KEYS[1]
local count, per, burst = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local terms = ARGV[1] .. ' ' .. ARGV[2] .. ' ' .. ARGV[3]
local stored = call('HMGET', key, 'terms', 'seen', 'ahead', 'n', 'last')
local time = call('TIME')
local clock = time[1] * 1000000 + time[2]
local now, seen, ahead, n, last = clock, clock, 0, 0, 0
if stored[1] then
  seen, ahead, n = tonumber(stored[2]), tonumber(stored[3]), tonumber(stored[4])
  last = tonumber(stored[5])
  local before = tonumber(string.match(stored[1], '^%d+ (%d+) %d+$'))
  if not (seen and ahead and n and last and before) then return {3} end
  now = clock + ahead
  -- The clock went back by more than a window: all that is stored goes back with it.
  if now < seen - before then
    ahead = ahead + seen - before - now
    now = seen - before
  end
  local over = string.match(stored[1], ' 0$') and last + before or last
  if over <= now then
    call('DEL', key)
    now, seen, ahead, n, last = clock, clock, 0, 0, 0
  elseif stored[1] ~= terms then
    return {2, now, over, stored[1]}
  end
end
local start, interval = now, math.ceil(per / count)
local place = burst > 0 and 0 or n % count
if burst > 0 then
  start = math.max(now, last - (burst - 1) * interval)
elseif n >= count then
  local first = tonumber(call('HGET', key, place))
  if not first then return {3} end
  start = math.max(now, first + per)
end
if start - now > tonumber(ARGV[6]) then return {1, now, start} end
if burst > 0 then
  last = math.max(start, last) + interval
else
  last = math.max(start + ARGV[4], now + ARGV[5], last)
end
local function text(number) return string.format('%.0f', number) end
call('HSET', key, 'terms', terms, 'seen', text(math.max(seen, now)), 'ahead', text(ahead),
  'n', text(n + 1), 'last', text(last), place, text(last))
call('PEXPIRE', key, text(math.ceil((last - now + 2 * per) / 1000)))
return {0, now, start}
