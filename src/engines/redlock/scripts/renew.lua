-- renew.lua: extend the keys of many claims at once.
--
-- KEYS  a lock for each claim, [then the node]
-- ARGV  an owner and a px for each claim, [then the group id]
-- Returns for each claim 1: extended; 0: certainly not ours; 2: unknown.
-- Safe to repeat: a second run extends the same keys again.
--
-- pcall: an error of one key must not fail the other claims of the batch. A node that was closed or
-- is in another group renews nothing: the next group waits only for the leases that exist now.
local replies, n, group_id = {}, #KEYS, ARGV[2 * #KEYS - 1]

if #ARGV % 2 == 1 then
  n = n - 1
  local group = redis.call('HGET', KEYS[n + 1], 'group')
  if group and string.sub(group, 1, 16) ~= group_id then
    for i = 1, n do replies[i] = 2 end
    return replies
  end
end

for i = 1, n do
  local holder = redis.pcall('GET', KEYS[i])
  if holder == ARGV[2 * i - 1] then
    replies[i] = redis.pcall('PEXPIRE', KEYS[i], ARGV[2 * i]) == 1 and 1 or 2
  else
    replies[i] = type(holder) == 'table' and not string.find(holder.err, 'WRONGTYPE') and 2 or 0
  end
end
return replies
