-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- holder_name.lua: a name for what has the lock's key, in letters, digits and '%'.
--
-- An owner value, which is new for every attempt, is its own name. What is left of a hold_at_least
-- has none: with fences the owner of the last grant is added, without them its text has the client.
local function holder_name(holder, stored)
  if holder == '~h' then holder = holder .. (string.match(stored or '', '^%d+ (%x+)') or '') end
  return (string.gsub(string.sub(holder, 1, 128), '%W', function(byte)
    return string.format('%%%02x', string.byte(byte))
  end))
end
