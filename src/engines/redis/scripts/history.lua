-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- history.lua: store the record of a name's last holder, unless a later holder has stored one.
--
-- KEYS  1 last
-- ARGV  1 token  2 record
-- Returns 1 stored, 0 a later holder's is there.
-- Safe to repeat: a second run stores the same record again.
--
-- Tokens are compared as text, and the shorter one is smaller: Lua's numbers are exact up to 2^53
-- only. A key that is not of ours is replaced.
local last, token = KEYS[1], ARGV[1]
local stored = redis.pcall('GET', last)
local latest = type(stored) == 'string' and string.match(stored, '^([1-9]%d*) ') or '0'
if #latest > 20 then latest = '0' end
if #latest > #token or #latest == #token and latest > token then return 0 end
redis.call('SET', last, token .. ' ' .. ARGV[2], 'PX', '2592000000')
return 1
