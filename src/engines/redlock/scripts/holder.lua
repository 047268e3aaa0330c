-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- holder.lua: what has the lock's key on one node, by the name that break.lua compares.
--
-- KEYS  1 lock  [2 fence]
-- Returns the name (lib/holder_name.lua); '': nothing has it.
-- Safe to repeat: it changes nothing.
local call, lock, fence = redis.call, KEYS[1], KEYS[2]
-- include: lib/holder_name.lua
local holder = call('GET', lock)
return holder and holder_name(holder, fence and call('GET', fence)) or ''
