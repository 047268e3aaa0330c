-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- del: DEL under the guard of a resource. The guard stays: a removed key is not open to old tokens.
--
-- KEYS  1 guard  2 data  [more data]
-- ARGV  1 token  2 issuer ('': not given)
-- Returns the number of keys that were removed.
-- Safe to repeat, unless the token is strict.
-- flags: allow-oom
-- include: lib/names.lua
-- include: lib/verdict.lua
-- include: lib/rule.lua
local bad = misuse(keys, args, 2)
if bad then return bad end
if #keys < 2 then return bad_call('the keys are a guard and the data keys to remove') end
if #keys > WORDS_MAX then return bad_call('too many keys') end
-- A server that is out of memory lets a script add something only after the script has changed
-- something: the deletion of a field that no guard has counts as a change.
redis.pcall('HDEL', keys[1], '')
return write(keys, args, read(keys[1]), 'DEL', unpack(keys, 2))
