-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- release.lua: give the lock back and hand it to the next live waiter; or withdraw from the queue.
--
-- KEYS  as for claim.lua
-- ARGV  1 owner  2 mode  3 px  4 terms  5 hold_ms  6 delay_ms
--       [7 with hold_ms or delay_ms: the prefix of the keys of sessions, in the same slot]
-- Returns 1 released, 2 withdrawn, 0 neither.
-- Safe to repeat: a second run finds another owner and no entry.
--
-- The most frequent case comes first and without functions: an exclusive holder hands over to an
-- exclusive waiter, which is granted the lock for a second. A server that is out of memory allows
-- ZPOPMIN and every command after it.
-- include: lib/keys.lua
local owner, mode, hold, delay = ARGV[1], ARGV[2], tonumber(ARGV[5]), tonumber(ARGV[6])
local stored = call('GET', lock)

if string.sub(stored or '', 1, 40) == owner and mode == 'x' and hold + delay == 0 then
  local first = call('ZPOPMIN', queue)
  if not first[1] then
    call('DEL', lock)
    return 1
  end
  local to, terms = string.match(first[1], '^(%S+) x %d+( .*)$')
  if not to then
    call('ZADD', queue, first[2], first[1])
    call('PEXPIRE', queue, '3600000') -- if it was the only one, the key is a new one
  elseif call('PUBLISH', 'stile:' .. string.sub(to, 1, 16), 'g ' .. to) > 0 then
    local token, time = call('INCR', counter), call('TIME')
    -- include: lib/start_counter.lua
    local record = token .. ' ' .. time[1] .. ' ' .. time[2] .. terms
    call('PSETEX', lock, '1000', to .. ' ' .. record)
    return 1
  end
end
-- include: lib/stored.lua
-- include: lib/functions.lua

drop_expired()
local record = record_of(owner, mode)
if not record then
  local withdrawn = call('ZREM', queue, owner .. ' ' .. mode .. ' ' .. ARGV[3] .. ARGV[4])
  serve()
  return withdrawn * 2
end

-- For the rest of hold_at_least or of a lock-delay the lock stays without an owner, on the server's
-- clock. Its record stays as long, with the description of the client behind it: the client deletes
-- its own when it closes.
local function kept_record()
  return with_time(record) .. ' ' .. (ARGV[7] and call('GET', ARGV[7] .. string.sub(owner, 1, 16)) or '')
end
local time = now()
local left = record == true and 0 or granted_ms(record) + hold - time
if mode == 'x' then
  if delay > 0 then left = math.max(left, math.min(delay, call('PTTL', lock))) end
  if left > 0 then
    value = '~h' .. (record == true and as_text(token_of(record)) or kept_record())
    call('SET', lock, value, 'PX', left)
  else
    call('DEL', lock)
    value = false
  end
else
  if delay > 0 then
    left = math.max(left, math.min(delay, call('ZSCORE', members, owner) - time))
  end
  call('ZREM', members, owner)
  call('HDEL', records, owner)
  if left > 0 then
    call('ZADD', members, time + left, '~h' .. owner)
    call('HSET', records, '~h' .. owner, kept_record())
    -- The last member was removed, and with it the time at which both keys expire.
    local most = math.max(left, call('PTTL', lock))
    call('PEXPIRE', members, most)
    call('PEXPIRE', records, most)
  elseif call('ZCARD', members) == 0 then
    call('DEL', lock)
    value = false
  end
end
serve()
return 1
