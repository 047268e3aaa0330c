-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- loss.lua: why an owner no longer holds the lock. Needs status.lua, and broken.
--
-- Returns 'b pid host'  `stile break` took it, in that process
--         'o'           another client of ours holds the lock
--         'v'           the key has another client's value
--         'x'           the key is gone, or the owner is no longer among the members
local function loss(owner, mode)
  local marks = redis.pcall('GET', broken)
  local by = type(marks) == 'string' and string.match(marks, owner .. ' ([^\n]*)\n')
  if by then return 'b ' .. by end
  if not value or value == '~' .. string.upper(mode) then return 'x' end
  return (string.sub(value, 1, 1) == '~' or holder_record) and 'o' or 'v'
end
