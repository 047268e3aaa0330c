-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- latest.lua: find the token that a break may go up to.
--
-- KEYS  1 counter
-- Returns the token of the latest grant, as text; if it was evicted, one that no grant reaches.
-- Safe to repeat: it changes nothing.
return redis.call('GET', KEYS[1]) or '9007199254740991'
