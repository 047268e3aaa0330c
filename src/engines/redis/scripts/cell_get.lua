-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- cell_get.lua: a cell and what its guard has seen.
--
-- KEYS  1 guard  2 cell
-- Returns {0, version, token, issuer, value, seconds, microseconds} with the server's time; version 0
-- without a value: there is none.
-- Safe to repeat: it changes nothing.
--
-- A value without a version was set by hand: it has version 1.
local seen = redis.call('HMGET', KEYS[1], 'token', 'issuer', 'version')
local value = redis.call('GET', KEYS[2])
local time = redis.call('TIME')
return {0, value and (seen[3] or '1') or '0', seen[1] or '0', seen[2] or '', value, time[1], time[2]}
