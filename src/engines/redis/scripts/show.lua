-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- show.lua: holders and queue of a name.
--
-- KEYS  as for claim.lua, and [7 broken  8 last]
-- ARGV  1 the prefix of the keys of sessions, in the same slot
-- Returns {value, pttl, token, holder, now, {{owner, end, record}, ...}, {waiter, ...}, last}
-- Safe to repeat: it removes only what has expired.
-- include: lib/keys.lua
local stored = call('GET', lock)
-- include: lib/stored.lua
-- include: lib/functions.lua

-- Each session stores its description once.
local sessions = {}
local function client_of(owner)
  local session = string.sub(owner, 1, 16)
  sessions[session] = sessions[session] or call('GET', ARGV[1] .. session) or ''
  return sessions[session]
end

-- The client that left a lock for the rest of a hold, which release.lua puts behind its record.
local function left_by(record)
  return string.match(record, '^%d+ %d+ %d+ %d+ %d+ %d+ %d+ (.*)$')
end

drop_expired()
local shown, entries, token = {}, call('ZRANGE', queue, 0, -1, 'WITHSCORES'), call('GET', counter)
local ghost = value and string.match(value, '^~h(%d+)')
if is_shared() then
  local list, most = call('ZRANGE', members, 0, -1, 'WITHSCORES'), 0
  for i = 1, #list, 2 do
    local record = call('HGET', records, list[i])
    local text = record and string.match(record, '^%d+') .. ' ' .. as_text(granted_ms(record))
      .. ' ' .. (left_by(record) or client_of(list[i])) or ''
    shown[#shown + 1] = {list[i], list[i + 1], text}
    most = math.max(most, record and token_of(record) or 0)
  end
  if most > 0 then token = as_text(most) end
end
local by = holder_record
if by then
  token = string.match(by, '^%d+')
  by = as_text(granted_ms(by)) .. ' ' .. client_of(value)
end
if ghost then
  token = ghost
  value = '~h'
  local record = string.match(stored, '^~h(%d+ %d+ %d+ .*)$')
  if record then
    by = as_text(granted_ms(record)) .. ' ' .. (left_by(record) or '')
  end
end

-- While the lock is free, a waiter whose client is not subscribed is dead, or about to send its
-- claim again. Without this check the entries of dead waiters would be shown for an hour.
local waiters, free = {}, not value and read_gap() <= now()
for i = 1, #entries, 2 do
  local owner, mode, _, _, slots = parse_entry(entries[i])
  if owner and not (free and notify(owner, 'h ' .. owner) == 0) then
    waiters[#waiters + 1] = owner .. ' ' .. mode .. ' ' .. slots .. ' '
      .. as_text(entries[i + 1] / 1000) .. ' ' .. client_of(owner)
  end
end

-- A damaged record is no reason to show nothing.
local record = KEYS[8] and redis.pcall('GET', KEYS[8])
record = type(record) == 'string' and string.match(record, '^%d+ (.*)$')
return {value, call('PTTL', lock), token, by, as_text(now()), shown, waiters, record or ''}
