-- show.lua: what one node knows of a name.
--
-- KEYS  1 lock  2 queue  [3 fence]
-- Returns {holder, pttl, fence, age of the grant in ms, {entry, ...}}
-- Safe to repeat: it changes nothing.
local call, lock, queue, fence = redis.call, KEYS[1], KEYS[2], KEYS[3]
local holder, waiters = call('GET', lock), {}

-- While nobody has the key, a waiter whose client is not listening is dead, or about to ask again.
-- When a holder and all its waiters have died, their entries would be shown for an hour.
for _, entry in ipairs(call('LRANGE', queue, 0, -1)) do
  local owner = string.sub(entry, 1, 40)
  if holder or call('PUBLISH', 'stile:' .. string.sub(owner, 1, 16), 'p ' .. owner) > 0 then
    waiters[#waiters + 1] = entry
  end
end
return {
  holder,
  call('PTTL', lock),
  fence and call('GET', fence) or false,
  fence and 604800000 - call('PTTL', fence) or 0,
  waiters,
}
