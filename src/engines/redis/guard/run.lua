-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- run: commands under the guard of a resource, all of them or none.
--
-- KEYS  1 guard  2 data  [more data]
-- ARGV  1 token  2 issuer ('': not given)
--       then for each command the number of its words and the words: 3 SET a 1  4 HSET b f v
-- Returns the replies of the commands.
-- Safe to repeat if all of its commands are, unless the token is strict.
--
-- Commands: GET SET INCR DECR INCRBY DECRBY, HGET HMGET HGETALL HSET HDEL HINCRBY, LPUSH RPUSH
-- LRANGE LTRIM, SADD SREM, ZADD ZREM, XADD (with *), DEL UNLINK EXPIRE PEXPIRE PERSIST. Each has one
-- key. A command that would fail is refused, with the whole list: one for another type of key, for
-- instance.
-- include: lib/names.lua
-- include: lib/verdict.lua
-- include: lib/rule.lua
-- include: lib/set_options.lua
-- include: lib/commands.lua
local bad = misuse(keys, args, 4)
if bad then return bad end
local seen = read(keys[1])
local token, refused = judge(keys, args, seen)
if refused then return refused end
local types, written, commands = {}, {}, {}
for i = 2, #keys do
  types[keys[i]] = redis.call('TYPE', keys[i]).ok
end
local first = 3
while first <= #args do
  local n = string.find(args[first], '^[1-9]%d?%d?%d?$') and tonumber(args[first])
  if not n or first + n > #args then
    return bad_call('before each command comes the number of its words')
  end
  local why = obstacle(args, first + 1, first + n, types, written)
  if why then return bad_call('command ' .. #commands + 1 .. ': ' .. why) end
  table.insert(commands, {first + 1, first + n})
  first = first + n + 1
end

local news, replies = is_news(seen, token, args[2]), {}
refused = news and remember(keys[1], seen, token, args[2])
if refused then return refused end
for i, place in ipairs(commands) do
  local reply = redis.pcall(unpack(args, place[1], place[2]))
  if error_of(reply) then
    if i == 1 and news then put_back(keys[1], seen) end
    -- Redis 6 cannot tell beforehand that the user may not call a later one.
    return i == 1 and reply or redis.error_reply('PARTIAL the commands before ' .. i ..
      ' were done: ' .. reply.err)
  end
  replies[i] = reply
end
return replies
