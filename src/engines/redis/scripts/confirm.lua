-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- confirm.lua: extend a grant that was made for a second to the full lease.
--
-- KEYS  as for claim.lua; the first three are enough for an exclusive lock
-- ARGV  1 owner  2 mode  3 px
-- Returns the token; 0: the owner does not hold the lock.
-- Safe to repeat: a second run extends the same grant again.
--
-- The most frequent case comes first: an exclusive grant with its time.
-- include: lib/keys.lua
local owner, mode, stored = ARGV[1], ARGV[2], call('GET', lock)

if mode == 'x' then
  if string.sub(stored or '', 1, 40) ~= owner then return 0 end
  local token = string.match(stored, '^ (%d+) [1-9]', 41)
  if token then
    call('PEXPIRE', lock, ARGV[3])
    return tonumber(token)
  end
end
-- include: lib/stored.lua
-- include: lib/functions.lua

drop_expired()
local token = token_of(record_of(owner, mode))
if token then extend(owner, mode, tonumber(ARGV[3])) end
return token or 0
