-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- loss.lua: why an owner no longer has the lock's key, which `holder` has now.
--
-- Returns 'b pid host'  `stile break` took it, in that process
--         'o'           another client of ours has the key
--         'v'           the key has another client's value
--         'x'           the key is gone
local function loss(owner, holder, broken)
  local marks = redis.pcall('GET', broken)
  local by = type(marks) == 'string' and string.match(marks, owner .. ' ([^\n]*)\n')
  if by then return 'b ' .. by end
  if not holder then return 'x' end
  local ours = #holder == 40 and string.find(holder, '^%x+$') or string.find(holder, '^~h')
  return ours and 'o' or 'v'
end
