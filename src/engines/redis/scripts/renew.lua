-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- renew.lua: extend many claims at once.
--
-- KEYS  for each claim its seven, as for check.lua
-- ARGV  for each claim its owner, mode and px
-- Returns for each claim 1: extended; 2: unknown; or why it is certainly not held (lib/loss.lua).
-- Safe to repeat: a second run extends the same claims again.
--
-- pcall: an error of one key must not fail the other claims of the batch. READONLY concerns the
-- whole server, so it is the reply to the whole batch: the client then leaves that server.
local call = redis.call
local value, holder_record, lock, queue, counter, members, records, gap, broken
-- include: lib/value.lua
-- include: lib/functions.lua
-- include: lib/loss.lua
local replies = {}

local function renew(i)
  local k = i * 7 - 6
  lock, queue, counter, members, records, gap, broken =
    KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], KEYS[k + 4], KEYS[k + 5], KEYS[k + 6]
  value, holder_record = parts_of(call('GET', lock))
  drop_expired()
  local owner, mode = ARGV[i * 3 - 2], ARGV[i * 3 - 1]
  local held = value == owner and mode == 'x' or mode ~= 'x' and record_of(owner, mode)
  if held then
    extend(owner, mode, tonumber(ARGV[i * 3]))
  else
    -- A replica that lags may not have the grant yet. It refuses ZREM, so it never reports a loss.
    call('ZREM', queue, '')
  end
  replies[i] = held and 1 or loss(owner, mode)
end

for i = 1, #ARGV / 3 do
  replies[i] = 2
  local done, err = pcall(renew, i)
  err = type(err) == 'table' and err.err or err
  err = not done and replies[i] == 2 and tostring(err) or ''
  if string.find(err, 'WRONGTYPE') then replies[i] = 'v' end
  if string.find(err, 'READONLY') then return redis.error_reply('READONLY a replica') end
end
return replies
