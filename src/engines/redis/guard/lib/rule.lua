-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- rule.lua: what every function checks first, and what it remembers. Needs names.lua, verdict.lua.
local TOKEN_MAX = '9223372036854775807'
local ISSUER_MAX = 600
-- Lua passes no more than about 8,000 words to a command.
local WORDS_MAX = 7000

local function is_token(text)
  return string.find(text, '^[1-9]%d*$') and not is_less(TOKEN_MAX, text)
end

local function is_issuer(text)
  return #text <= ISSUER_MAX and not string.find(text, '%c')
end

local function error_of(reply)
  return type(reply) == 'table' and reply.err and reply
end

local function bad_call(text)
  return redis.error_reply('BADCALL ' .. text)
end

local function bad_token()
  return redis.error_reply('BADTOKEN a token is a number from 1 to ' .. TOKEN_MAX)
end

-- The guard's record {token, issuer}, or an error. A missing field is false.
local function read(guard)
  return redis.pcall('HMGET', guard, 'token', 'issuer')
end

-- What is wrong with a call, or nil.
local function misuse(keys, args, n_args)
  if #keys < 1 or not resource_of(keys[1]) then
    return bad_call('the first key must be the key of a guard, such as stile:guard:{accounts}')
  end
  if #args < n_args then return bad_call('too few arguments') end
  if #args > WORDS_MAX then return bad_call('too many arguments') end
  if not is_issuer(args[2]) then
    return bad_call('an issuer has up to 600 bytes and no control characters')
  end
  for i = 2, #keys do
    if string.sub(keys[i], 1, 6) == 'stile:' then
      return bad_call(keys[i] .. ' is a key of stile, not of data')
    end
  end
end

-- Returns the token without ' strict', or nil and an error.
local function judge(keys, args, seen)
  if error_of(seen) then return nil, seen end
  local issuer, name = args[2], resource_of(keys[1])
  local token = string.match(args[1], '^(%d+) strict$')
  local strict = token ~= nil
  token = token or args[1]
  if not is_token(token) then return nil, bad_token() end
  local highest, from = seen[1] or '0', seen[2] or ''
  local refused = verdict(token, issuer, strict, highest, from)
  if refused == 'FOREIGN' then
    return nil, redis.error_reply('FOREIGN token of ' .. issuer .. ' for ' .. name ..
      ', whose tokens come from ' .. from)
  elseif refused == 'CORRUPT' then
    return nil, redis.error_reply('BADGUARD the guard of ' .. name .. ' is damaged: reset it')
  elseif refused then
    return nil, redis.error_reply('STALE stale token ' .. token .. ' for ' .. name ..
      ': the highest seen is ' .. highest)
  end
  return token
end

local function is_news(seen, token, issuer)
  return token ~= seen[1] or issuer ~= '' and issuer ~= seen[2]
end

-- Without an issuer the stored one stays. Returns an error or nil.
local function remember(guard, seen, token, issuer)
  return error_of(redis.pcall('HSET', guard, 'token', token, 'issuer',
    issuer == '' and seen[2] or issuer))
end

local function put_back(guard, seen)
  redis.call('HDEL', guard, 'token', 'issuer')
  if seen[1] then redis.call('HSET', guard, 'token', seen[1], 'issuer', seen[2] or '') end
end

-- One command under the guard. If it fails, the guard is as it was.
local function write(keys, args, seen, ...)
  local token, refused = judge(keys, args, seen)
  if refused then return refused end
  local news = is_news(seen, token, args[2])
  refused = news and remember(keys[1], seen, token, args[2])
  if refused then return refused end
  local reply = redis.pcall(...)
  if news and error_of(reply) then put_back(keys[1], seen) end
  return reply
end
