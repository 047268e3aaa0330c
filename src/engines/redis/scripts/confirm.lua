-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- confirm.lua: extend a grant that was made for a second to the full lease.
--
-- KEYS  as for claim.lua; the first four are enough for an exclusive lock
-- ARGV  1 owner  2 mode  3 px
-- Returns the token; 0: the owner does not hold the lock.
-- Safe to repeat: a second run extends the same grant again.
-- include: lib/keys.lua
local owner, mode = ARGV[1], ARGV[2]

if mode == 'x' then
  if value ~= owner then return 0 end
  call('PEXPIRE', lock, ARGV[3])
  local granted, token = string.match(call('GET', holder) or '', '^(%S+) (%d+)')
  if granted == owner then return tonumber(token) end
end
-- include: lib/status.lua
-- include: lib/functions.lua

drop_expired()
local token = token_of(record_of(owner, mode))
if token then extend(owner, mode, tonumber(ARGV[3])) end
return token or 0
