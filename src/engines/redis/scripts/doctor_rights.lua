-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- doctor_rights.lua: which commands the ACL denies to scripts.
--
-- KEYS  1 lock   2 a key of its own  [3 counter]; the ACL is checked for all of them
-- ARGV  commands; `del` first: it clears up behind the others
-- Returns the denied ones, separated by spaces.
-- Safe to repeat: each is called in a form that changes nothing, or nothing that stays.
--
-- The ACL is checked before a command runs: any other error means that it is allowed.
local key, denied = KEYS[2], {}
local forms = {
  time = {}, scan = {'0'}, publish = {'stile:0000000000000000', 'doctor'},
  set = {key, '', 'XX'}, psetex = {key, '0', ''}, pexpire = {key, '1'},
  hget = {key, 'f'}, hmget = {key, 'f'}, hset = {key, 'f', 'v', 'g'}, hdel = {key, 'f'},
  hincrby = {key, 'f', 'x'}, pexpireat = {key, '1'},
  zadd = {key, 'NX', 'XX', '1', 'm'}, zrange = {key, '0', '0'}, zrevrange = {key, '0', '0'},
  zrangebyscore = {key, '0', '0'}, zrank = {key, 'm'}, zrem = {key, 'm'}, zscore = {key, 'm'},
  lindex = {key, '0'}, lpos = {key, 'x'}, lrange = {key, '0', '0'}, lrem = {key, '0', 'x'},
  rpush = {key, 'x'}, lpush = {key, 'x'},
}
for _, name in ipairs(ARGV) do
  local reply = redis.pcall(name, unpack(forms[name] or {key}))
  local message = type(reply) == 'table' and reply.err or ''
  if string.find(message, 't run this command') or string.find(message, 'permissions to run') then
    denied[#denied + 1] = name
  end
  if denied[1] ~= 'del' then redis.pcall('del', key) end
end
return table.concat(denied, ' ')
