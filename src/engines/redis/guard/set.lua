-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- set: SET under the guard of a resource.
--
-- KEYS  1 guard  2 data
-- ARGV  1 token  2 issuer ('': not given)  3 value  [EX s | PX ms | EXAT s | PXAT ms | KEEPTTL]
-- Returns OK.
-- Safe to repeat, unless the token is strict.
--
-- The first lines serve a holder that has written before: no function is made until one is needed.
local seen = redis.pcall('HMGET', keys[1] or '', 'token', 'issuer')
if seen[1] == args[1] and (args[2] == '' or args[2] == seen[2]) and #args == 3 and #keys == 2
  and string.sub(keys[2], 1, 6) ~= 'stile:' then
  return redis.pcall('SET', keys[2], args[3])
end
-- include: lib/names.lua
-- include: lib/verdict.lua
-- include: lib/rule.lua
-- include: lib/set_options.lua
local bad = misuse(keys, args, 3)
if bad then return bad end
if #keys ~= 2 then return bad_call('the keys are a guard and a data key') end
if not are_set_options(args, 4, #args) then
  return bad_call('after the value comes EX, PX, EXAT or PXAT with a number, or KEEPTTL')
end
return write(keys, args, seen, 'SET', keys[2], unpack(args, 3))
