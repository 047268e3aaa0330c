-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- break.lua: take the lock from its holder and hand it to the next live waiter.
--
-- KEYS  as for claim.lua, and 7 broken
-- ARGV  1 token ('0': whichever grant it is)  2 pid, host and command of the caller
-- Returns 1 broken, 0 not held, -1 another grant.
-- Safe to repeat with a token: a second run finds another grant, or none.
-- include: lib/keys.lua
local stored = call('GET', lock)
-- include: lib/stored.lua
-- include: lib/functions.lua
local token, broken, by = ARGV[1], KEYS[7], string.match(ARGV[2], '^%d+ %S+') or ''

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
    local granted = string.match(call('HGET', records, owner) or '', '^%d+')
    if token == '0' or granted == token then
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
  if token ~= '0' and granted ~= token then return -1 end
  call('DEL', lock)
  if #value == 40 and string.sub(value, 1, 1) ~= '~' then report(value) end
  value = false
end
serve()
return 1
