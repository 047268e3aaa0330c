-- show.lua: what one node knows of a name.
--
-- KEYS  1 lock  2 queue  [3 fence]
-- Returns {holder, pttl, fence, age of the grant in ms, {entry, ...}}
-- Safe to repeat: it changes nothing.
local call, lock, queue, fence = redis.call, KEYS[1], KEYS[2], KEYS[3]
return {
  call('GET', lock),
  call('PTTL', lock),
  fence and call('GET', fence) or false,
  fence and 604800000 - call('PTTL', fence) or 0,
  call('LRANGE', queue, 0, -1),
}
