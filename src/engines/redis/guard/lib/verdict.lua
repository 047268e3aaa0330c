-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- verdict.lua: the rule of a guard, for functions, scripts and cells.
--
-- Tokens are compared as decimal texts: a Lua number is exact up to 2^53 only.
local function is_less(a, b)
  return #a < #b or #a == #b and a < b
end

-- 'FOREIGN', 'STALE', or nil if the token passes. Token '0', none, passes where none was seen.
-- 'CORRUPT': what was seen is no token, so that nothing can be compared with it.
local function verdict(token, issuer, strict, highest, from)
  if highest ~= '0' and not (#highest <= 19 and string.find(highest, '^[1-9]%d*$')) then
    return 'CORRUPT'
  end
  if token ~= '0' and issuer ~= '' and from ~= '' and issuer ~= from then return 'FOREIGN' end
  if is_less(token, highest) or strict and token == highest and token ~= '0' then return 'STALE' end
end
