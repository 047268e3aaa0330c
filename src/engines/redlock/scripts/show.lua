-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- show.lua: the state of a name on one node.
--
-- KEYS  1 lock  2 queue  3 last  [4 fence]
-- Returns {holder, pttl, fence, age of the grant in ms, {entry, ...}, last}
-- Safe to repeat: it changes nothing.
local call, lock, queue, last, fence = redis.call, KEYS[1], KEYS[2], redis.pcall('GET', KEYS[3]), KEYS[4]
local holder, waiters = call('GET', lock), {}
local by, age = fence and call('GET', fence), fence and 604800000 - call('PTTL', fence) or 0

-- Without fences, a hold names the client that left it.
local since, client = string.match(holder or '', '^~h (%d+) (.*)$')
if since then
  local time = call('TIME')
  holder, by = '~h', '0 ~h ' .. client
  age = time[1] * 1000 + math.floor(time[2] / 1000) - since
end

-- While the key is free, a waiter whose client is not subscribed is dead, or about to send its
-- claim again. Without this check the entries of dead waiters would be shown for an hour.
for _, entry in ipairs(call('LRANGE', queue, 0, -1)) do
  local owner = string.sub(entry, 1, 40)
  if holder or call('PUBLISH', 'stile:' .. string.sub(owner, 1, 16), 'p ' .. owner) > 0 then
    waiters[#waiters + 1] = entry
  end
end
return {
  holder,
  call('PTTL', lock),
  by or false,
  age,
  waiters,
  -- A damaged record is no reason to show nothing.
  type(last) == 'string' and last or '',
}
