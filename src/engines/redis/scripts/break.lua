-- break.lua: take the lock from its holder and hand it to the next live waiter.
--
-- KEYS  as for claim.lua
-- ARGV  1 token ('0': whichever grant it is)
-- Returns 1 broken, 0 not held, -1 another grant.
-- Safe to repeat with a token: a second run finds another grant, or none.
-- include: lib/keys.lua
-- include: lib/status.lua
-- include: lib/functions.lua
local token = ARGV[1]

drop_expired()
if not value then return 0 end
if is_shared() then
  local hit = 0
  for _, owner in ipairs(call('ZRANGE', members, 0, -1)) do
    local granted = string.match(call('HGET', records, owner) or '', '^%d+')
    if token == '0' or granted == token then
      call('ZREM', members, owner)
      call('HDEL', records, owner)
      notify(owner, 'b ' .. owner)
      hit = 1
    end
  end
  if hit == 0 then return -1 end
  if call('ZCARD', members) == 0 then
    call('DEL', lock)
    value = false
  end
else
  local granted = string.match(value, '^~h(%d+)') or string.match(holder_record() or '', '^%d+')
  if token ~= '0' and granted ~= token then return -1 end
  call('DEL', lock, holder)
  if #value == 40 then notify(value, 'b ' .. value) end
  value = false
end
serve()
return 1
