-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- reset: make a guard remember what is given, smaller tokens and other issuers included: for
-- migrations. Until it is raised again, a paused holder with an old token can write.
--
-- KEYS  1 guard
-- ARGV  1 token ('0' with an empty issuer: as if none was ever seen)  2 issuer ('': none)
-- Returns OK.
-- Safe to repeat.
-- flags: allow-oom
-- include: lib/names.lua
-- include: lib/verdict.lua
-- include: lib/rule.lua
local token, issuer = args[1], args[2]
local bad = misuse(keys, args, 2)
if bad then return bad end
if token ~= '0' and not is_token(token) then return bad_token() end
local refused = error_of(redis.pcall('HDEL', keys[1], 'token', 'issuer'))
if not refused and (token ~= '0' or issuer ~= '') then
  refused = remember(keys[1], {}, token, issuer)
end
return refused or {ok = 'OK'}
