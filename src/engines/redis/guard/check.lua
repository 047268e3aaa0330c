-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- check: whether a token would pass. Remembers nothing: by the time of a write the answer is old.
--
-- KEYS  1 guard
-- ARGV  1 token  2 issuer ('': not given)
-- Returns the highest token seen so far, 0 if there was none.
-- Safe to repeat: it changes nothing.
-- flags: no-writes
-- include: lib/names.lua
-- include: lib/verdict.lua
-- include: lib/rule.lua
local bad = misuse(keys, args, 2)
if bad then return bad end
local seen = read(keys[1])
local _, refused = judge(keys, args, seen)
return refused or seen[1] or '0'
