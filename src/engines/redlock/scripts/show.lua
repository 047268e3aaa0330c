-- show.lua: the state of a name on one node.
--
-- KEYS  1 lock  2 queue  [3 fence]
-- Returns {holder, pttl, fence, age of the grant in ms, {entry, ...}}
-- Safe to repeat: it changes nothing.
local call, lock, queue, fence = redis.call, KEYS[1], KEYS[2], KEYS[3]
local holder, waiters = call('GET', lock), {}

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
  fence and call('GET', fence) or false,
  fence and 604800000 - call('PTTL', fence) or 0,
  waiters,
}
