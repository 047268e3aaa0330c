-- check.lua: whether an owner still holds the lock, and if not, why.
--
-- KEYS  as for claim.lua, and 8 broken
-- ARGV  1 owner  2 mode
-- Returns 1, or the reason (lib/loss.lua).
-- Safe to repeat: it removes only what has expired.
-- include: lib/keys.lua
-- include: lib/status.lua
-- include: lib/functions.lua
local broken = KEYS[8]
-- include: lib/loss.lua
local owner, mode = ARGV[1], ARGV[2]

drop_expired()
if record_of(owner, mode) then return 1 end
-- A replica that lags may not have the grant yet. It refuses ZREM, so it never reports a loss.
call('ZREM', queue, '')
return loss(owner, mode)
