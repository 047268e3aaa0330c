-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- raise: let a token pass and remember it, without a write. A new holder raises the guard before it
-- reads, so that the old one can no longer change what was read.
--
-- KEYS  1 guard
-- ARGV  1 token  2 issuer ('': not given)
-- Returns the highest token, which is the given one.
-- Safe to repeat, unless the token is strict.
-- flags: allow-oom
-- include: lib/names.lua
-- include: lib/verdict.lua
-- include: lib/rule.lua
local bad = misuse(keys, args, 2)
if bad then return bad end
-- A server that is out of memory lets a script add something only after the script has changed
-- something: the deletion of a field that no guard has counts as a change.
redis.pcall('HDEL', keys[1], '')
local seen = read(keys[1])
local token, refused = judge(keys, args, seen)
if not refused and is_news(seen, token, args[2]) then
  refused = remember(keys[1], seen, token, args[2])
end
return refused or token
