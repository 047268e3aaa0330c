-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- value.lua: what is stored at a lock, in two parts.
--
-- Returns the owner and the record of an exclusive holder; of anything else the whole and false.
local function parts_of(stored)
  if stored and string.byte(stored, 41) == 32 then
    local owner, record = string.match(stored, '^(%x+) (%d+ %d+ %d+ %d+ %d+ %d+ %d+)$')
    if owner then return owner, record end
  end
  return stored, false
end
