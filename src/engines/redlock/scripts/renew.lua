-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- renew.lua: extend the keys of many claims at once.
--
-- KEYS  a lock and its broken for each claim, [then the node]
-- ARGV  an owner and a px for each claim, [then the group id]
-- Returns for each claim 1: extended; 2: unknown; or why it is certainly not ours (lib/loss.lua).
-- Safe to repeat: a second run extends the same keys again.
--
-- pcall: an error of one key must not fail the other claims of the batch. A node that was closed or
-- is in another group renews nothing: the next group waits only for the leases that exist now.
-- include: lib/loss.lua
local replies, n = {}, math.floor(#ARGV / 2)

if #ARGV > 2 * n then
  local group = redis.call('HGET', KEYS[2 * n + 1], 'group')
  if group and string.sub(group, 1, 16) ~= ARGV[2 * n + 1] then
    for i = 1, n do replies[i] = 2 end
    return replies
  end
end

for i = 1, n do
  local lock, owner = KEYS[2 * i - 1], ARGV[2 * i - 1]
  local holder = redis.pcall('GET', lock)
  if holder == owner then
    replies[i] = redis.pcall('PEXPIRE', lock, ARGV[2 * i]) == 1 and 1 or 2
  elseif type(holder) == 'table' then
    replies[i] = string.find(holder.err, 'WRONGTYPE') and 'v' or 2
  else
    replies[i] = loss(owner, holder, KEYS[2 * i])
  end
end
return replies
