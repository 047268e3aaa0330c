-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- keys.lua: the keys of a name, as in scripts.h.
local call = redis.call
local lock, queue, counter, members, records, gap =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
