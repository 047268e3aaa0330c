-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- commands.lua: the commands of run.lua, and whether one will succeed. Needs rule.lua,
-- set_options.lua.
--
-- A script has no rollback: what it did before an error stays. So a list of commands is examined
-- first, and only commands are taken whose success follows from their words and from the type or
-- value of their key.

-- Redis takes no leading zeros. The sum of two such numbers fits into 64 bits.
local function is_integer(text)
  return #text <= 18 and (text == '0' or string.find(text, '^-?[1-9]%d*$')) and true
end

local function is_score(text)
  return string.find(text, '^[+-]?%d+%.?%d*$') or string.find(text, '^[+-]?%d+%.?%d*e[+-]?%d%d?$')
    or string.find(text, '^[+-]?inf$')
end

-- Each takes the words and the places of the first and last one behind the key.
local function none(_, from, to) return to < from end
local function one(_, from, to) return to == from end
local function some(_, from, to) return to >= from end
local function pairs_of_words(_, from, to) return to > from and (to - from) % 2 == 1 end
local function integer(words, from, to) return to == from and is_integer(words[from]) end
local function field_integer(words, from, to) return to == from + 1 and is_integer(words[to]) end
local function range(words, from, to)
  return to == from + 1 and is_integer(words[from]) and is_integer(words[to])
end
local function seconds(words, from, to) return to == from and is_time(words[from], 12) end
local function milliseconds(words, from, to) return to == from and is_time(words[from], 15) end
local function value_options(words, from, to)
  return to >= from and are_set_options(words, from + 1, to)
end
local function scores(words, from, to)
  for i = from, to, 2 do
    if not is_score(words[i]) then return false end
  end
  return pairs_of_words(words, from, to)
end
local function new_entry(words, from, to)
  return words[from] == '*' and pairs_of_words(words, from + 1, to)
end

-- name = {which words may follow the key, the type of the key ('any': each), the type it has then}
local COMMANDS = {
  GET = {none, 'string'}, SET = {value_options, 'any', 'string'},
  INCR = {none, 'string', 'string', 'counts'}, DECR = {none, 'string', 'string', 'counts'},
  INCRBY = {integer, 'string', 'string', 'counts'},
  DECRBY = {integer, 'string', 'string', 'counts'},
  HGET = {one, 'hash'}, HMGET = {some, 'hash'}, HGETALL = {none, 'hash'},
  HSET = {pairs_of_words, 'hash', 'hash'}, HDEL = {some, 'hash', 'hash'},
  HINCRBY = {field_integer, 'hash', 'hash', 'counts'},
  LPUSH = {some, 'list', 'list'}, RPUSH = {some, 'list', 'list'}, LTRIM = {range, 'list', 'list'},
  LRANGE = {range, 'list'},
  SADD = {some, 'set', 'set'}, SREM = {some, 'set', 'set'},
  ZADD = {scores, 'zset', 'zset'}, ZREM = {some, 'zset', 'zset'},
  XADD = {new_entry, 'stream', 'stream'},
  DEL = {none, 'any', 'none'}, UNLINK = {none, 'any', 'none'},
  EXPIRE = {seconds, 'any'}, PEXPIRE = {milliseconds, 'any'}, PERSIST = {none, 'any'},
}

-- Whether the number that a command adds to is one.
local function adds_to_number(name, key, field)
  local value = name == 'HINCRBY' and redis.call('HGET', key, field)
  if name ~= 'HINCRBY' then value = redis.call('GET', key) end
  return not value or is_integer(value)
end

-- Why the command in words[first] to words[last] cannot work, or nil. types has the types that the
-- data keys have before it, and written those that an earlier command of the list writes.
local function obstacle(words, first, last, types, written)
  local name, key = string.upper(words[first] or ''), words[first + 1]
  local rule = COMMANDS[name]
  if not rule then return name .. ' is none of the commands that can run here' end
  if not key or not types[key] then return name .. ' has no key that was given as a data key' end
  if not rule[1](words, first + 2, last) then return name .. ' has the wrong arguments' end
  if rule[2] ~= 'any' and types[key] ~= 'none' and types[key] ~= rule[2] then
    return name .. ' is for a ' .. rule[2] .. ', and ' .. key .. ' is a ' .. types[key]
  end
  if rule[4] and written[key] then return name .. ' must come before other writes to ' .. key end
  if rule[4] and not adds_to_number(name, key, words[first + 2]) then
    return name .. ' finds no number of up to 18 digits in ' .. key
  end
  if redis.acl_check_cmd and not redis.acl_check_cmd(unpack(words, first, last)) then
    return 'the user may not call ' .. name .. ' on ' .. key
  end
  types[key] = rule[3] or types[key]
  written[key] = written[key] or rule[3] ~= nil
end
