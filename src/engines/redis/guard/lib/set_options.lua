-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- set_options.lua: the options of SET that cannot make it fail or do nothing.
local EXPIRIES = {EX = 12, PX = 15, EXAT = 12, PXAT = 15}

-- A positive number of so many digits at most: the server can add the time to it.
local function is_time(text, digits)
  return text and #text <= digits and string.find(text, '^[1-9]%d*$')
end

local function are_set_options(args, from, to)
  local word = from <= to and string.upper(args[from])
  if to == from then return word == 'KEEPTTL' end
  return to < from or to == from + 1 and EXPIRIES[word] and is_time(args[to], EXPIRIES[word])
end
