-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- break.lua: take the lock from its holder and hand it to the next live waiter.
--
-- KEYS  as for claim.lua, and 7 broken
-- ARGV  1 first token  2 last token  3 pid, host and command of the caller
-- Returns 1 broken, 0 not held, -1 another grant.
-- Safe to repeat: a second run finds a later grant, or none. So a request that arrives late, after
-- its caller has given up, takes nothing from a later holder. Other clients' locks have no token;
-- a break from 0 on takes them whenever it arrives.
-- include: lib/keys.lua
local stored = call('GET', lock)
-- include: lib/stored.lua
-- include: lib/functions.lua
local first, last = tonumber(ARGV[1]), tonumber(ARGV[2])
local broken, by = KEYS[7], string.match(ARGV[3], '^%d+ %S+') or ''

-- Takes text, or nil for a grant without a token: only a break of any grant is meant for that.
local function is_meant(text)
  local token = tonumber(text or 0)
  return first <= token and token <= last
end

-- The message reaches a holder that is subscribed; any other finds the mark when it next looks.
local function report(owner)
  local marks = redis.pcall('GET', broken)
  marks = owner .. ' ' .. by .. '\n' .. (type(marks) == 'string' and marks or '')
  call('SET', broken, string.sub(marks, 1, 8192), 'PX', '3600000')
  notify(owner, 'b ' .. owner .. ' ' .. by)
end

drop_expired()
if not value then return 0 end
if is_shared() then
  local hit = 0
  for _, owner in ipairs(call('ZRANGE', members, 0, -1)) do
    if is_meant(string.match(call('HGET', records, owner) or '', '^%d+')) then
      call('ZREM', members, owner)
      call('HDEL', records, owner)
      if #owner == 40 then report(owner) end
      hit = 1
    end
  end
  if hit == 0 then return -1 end
  if call('ZCARD', members) == 0 then
    call('DEL', lock)
    value = false
  end
else
  local granted = string.match(value, '^~h(%d+)') or string.match(holder_record or '', '^%d+')
  if not is_meant(granted) then return -1 end
  call('DEL', lock)
  if #value == 40 and string.sub(value, 1, 1) ~= '~' then report(value) end
  value = false
end
serve()
return 1
