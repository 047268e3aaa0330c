-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- functions.lua: granting, extending and serving the queue. Needs keys.lua and stored.lua.
--
-- The rule is fits(): a claim is granted if all holders have its mode and, for slots, are fewer
-- than its number of slots. A server that is out of memory lets a script add something only after
-- the script has changed something: what must work even then begins with a PEXPIRE or DEL.
local function now()
  local time = call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function as_text(number)
  return string.format('%.0f', number)
end

local function is_shared()
  return value == '~S' or value == '~N'
end

-- Removes expired members, and the lock with the last of them.
local function drop_expired()
  if not is_shared() then return end
  for _, owner in ipairs(call('ZRANGEBYSCORE', members, '-inf', now())) do
    call('ZREM', members, owner)
    call('HDEL', records, owner)
  end
  if call('ZCARD', members) == 0 then
    call('DEL', lock)
    value = false
  end
end

local function fits(mode, slots)
  if not value then return true end
  if mode == 's' then return value == '~S' end
  return mode == 'n' and value == '~N' and call('ZCARD', members) < tonumber(slots)
end

-- take.lua stores no time: until the lease is extended, the lock's expiry shows it.
local function granted_ms(record)
  local s, us, ttl, hold, delay = string.match(record, '^%d+ (%d+) (%d+) (%d+) (%d+) (%d+)')
  if s ~= '0' then return s * 1000 + math.floor(us / 1000) end
  return now() - math.max(ttl + delay, hold) + call('PTTL', lock)
end

-- The record with its time, for what outlives the present expiry of the lock.
local function with_time(record)
  local token, terms = string.match(record, '^(%d+) 0 0( .*)$')
  if not token then return record end
  local ms = granted_ms(record)
  return token .. ' ' .. as_text(math.floor(ms / 1000)) .. ' ' .. ms % 1000 * 1000 .. terms
end

local function extend_exclusive(px)
  local record = holder_record and with_time(holder_record)
  call('PEXPIRE', lock, px)
  if record ~= holder_record then call('SET', lock, value .. ' ' .. record, 'PX', px) end
  holder_record = record
end

-- The lock and its other keys never expire before another member does.
local function extend(owner, mode, px)
  if mode == 'x' then
    extend_exclusive(px)
    return
  end
  local most = math.max(px, call('PTTL', lock))
  call('PEXPIRE', lock, most)
  call('ZADD', members, now() + px, owner)
  call('PEXPIRE', members, most)
  call('PEXPIRE', records, most)
end

local function next_token()
  local token = call('INCR', counter)
  -- include: lib/start_counter.lua
  return token
end

local function grant(owner, mode, px, terms)
  local token, time = next_token(), call('TIME')
  local record = as_text(token) .. ' ' .. time[1] .. ' ' .. time[2] .. terms
  if mode == 'x' then
    value, holder_record = owner, record
    call('SET', lock, owner .. ' ' .. record, 'PX', px)
    return token
  end
  if not value then
    value = '~' .. string.upper(mode)
    call('DEL', members, records)
    call('SET', lock, value, 'PX', px)
  end
  call('HSET', records, owner, record)
  extend(owner, mode, tonumber(px))
  return token
end

-- The record of the owner's grant; true if there is none; false if it does not hold the lock.
local function record_of(owner, mode)
  if mode == 'x' then return value == owner and (holder_record or true) end
  return value == '~' .. string.upper(mode) and call('HGET', records, owner)
end

-- A grant without a record gets a larger token, which does no harm.
local function token_of(record)
  if record == true then return next_token() end
  return record and tonumber(string.match(record, '^%d+'))
end

-- owner, mode, px, terms, slots
local function parse_entry(entry)
  return string.match(entry, '^(%S+) (%a) (%d+)( %d+ %d+ %d+ (%d+))$')
end

-- Returns how many clients received the message; 0 means that the owner's client is gone.
local function notify(owner, message)
  return call('PUBLISH', 'stile:' .. string.sub(owner, 1, 16), message)
end

-- Until when waiters are not served, and when another client's key was last seen, in ms.
local function read_gap()
  local till, seen = string.match(call('GET', gap) or '', '^(%d+) (%d+)$')
  return tonumber(till or 0), tonumber(seen or 0)
end

-- Whether a free lock stays free for a while (a gap), for other clients that poll it. Such a client
-- leaves no trace while it waits: unless a key of one was seen lately, gaps are rare and the first
-- is short. A gap must outlast the pause between two of their tries, up to 300 ms by default. The
-- first waiter looks again when the gap ends. Waiters whose client is gone are dropped: if all of
-- them were dead, the queue would stay for an hour.
local function leave_gap(me)
  local time, till, seen = now(), read_gap()
  local lately, first = time - seen < 10000, till == 0
  local ms = not lately and first and 100 or 400
  local function next_entry()
    return call('ZRANGE', queue, '0', '0')[1]
  end
  call('ZREM', queue, '~gap')
  local entry = next_entry()
  while entry and not value do
    local owner = string.sub(entry, 1, 40)
    if owner == me or notify(owner, 'h ' .. owner .. ' ' .. ms) > 0 then break end
    call('ZREM', queue, entry)
    notify(owner, 'g ' .. owner)
    entry = next_entry()
  end
  if not entry then return false end
  local pause = lately and 1000 or first and 3000 or 20000
  -- Behind the first waiter, even if the clock was set back: serve() would find it again for ever.
  local behind_first = call('ZSCORE', queue, entry) + 1
  call('ZADD', queue, math.max((time + pause) * 1000, behind_first), '~gap')
  if value then return false end
  call('SET', gap, as_text(time + ms) .. ' ' .. as_text(seen), 'PX', '30000')
  return true
end

-- Grants to the waiters in order, as long as the next one fits. Waiters without a subscribed client
-- are dropped: one that is subscribed on another node of a Cluster sends its claim again. `me` is
-- the caller, which gets its grant as the reply.
local function serve(me)
  if not value and call('EXISTS', gap) == 1 and read_gap() > now() then return end
  while true do
    local entry = call('ZRANGE', queue, '0', '0')[1]
    if not entry then return end
    if entry == '~gap' then
      if leave_gap(me) then return end
    else
      local owner, mode, px, terms, slots = parse_entry(entry)
      local fit = fits(mode, slots)
      if fit then
        call('ZREM', queue, entry)
        if owner == me or notify(owner, 'g ' .. owner) > 0 then
          grant(owner, mode, 1000, terms)
        end
      elseif owner == me or notify(owner, 'h ' .. owner) > 0 then
        return
      else
        call('ZREM', queue, entry)
        notify(owner, 'g ' .. owner)
      end
    end
  end
end
