-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- hset: HSET under the guard of a resource.
--
-- KEYS  1 guard  2 data
-- ARGV  1 token  2 issuer ('': not given)  3 field  4 value  [field value ...]
-- Returns the number of new fields.
-- Safe to repeat, unless the token is strict.
-- include: lib/names.lua
-- include: lib/verdict.lua
-- include: lib/rule.lua
local bad = misuse(keys, args, 4)
if bad then return bad end
if #keys ~= 2 then return bad_call('the keys are a guard and a data key') end
if #args % 2 == 1 then return bad_call('fields and values come in pairs') end
return write(keys, args, read(keys[1]), 'HSET', keys[2], unpack(args, 3))
