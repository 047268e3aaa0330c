-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- show: what a guard remembers.
--
-- KEYS  1 guard
-- Returns {highest token, issuer}; {0, ''} if it has seen no token.
-- Safe to repeat: it changes nothing.
-- flags: no-writes
-- include: lib/names.lua
-- include: lib/verdict.lua
-- include: lib/rule.lua
local bad = misuse(keys, {'', ''}, 2)
if bad then return bad end
local seen = read(keys[1])
return error_of(seen) or {seen[1] or '0', seen[2] or ''}
