-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- status.lua: the reply to a waiter. Needs keys.lua, stored.lua.

-- {0, ms until the present holder's lease must have ended (below 0: never), place in the queue,
-- value}: if another client's key blocks the first waiter, value is that key's. Such a key may go
-- without a message to us.
local function status(entry)
  local ms, rank = call('PTTL', lock), call('ZRANK', queue, entry) or 0
  if rank == 1 and call('ZRANGE', queue, '0', '0')[1] == '~gap' then rank = 0 end
  if value == '~S' or value == '~N' then
    local time, ends = call('TIME'), call('ZRANGE', members, '0', '0', 'WITHSCORES')[2]
    if ends then ms = math.max(0, ends - time[1] * 1000 - math.floor(time[2] / 1000)) end
    return {0, ms, rank, ''}
  end
  local ours = rank > 0 or not value or string.sub(value, 1, 2) == '~h' or holder_record
  return {0, ms, rank, ours and '' or string.sub(value, 1, 40)}
end
