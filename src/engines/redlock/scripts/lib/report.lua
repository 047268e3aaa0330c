-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- report.lua: the record of a node, in the order of redlock_survey's replies.
local function report(changed)
  local fields = redis.call('HMGET', KEYS[1],
    'group', 'highest', 'longest', 'was', 'seat', 'seats', 'n', 'next', 'past')
  for i = 1, 9 do fields[i] = fields[i] or '' end
  table.insert(fields, 1, changed)
  return fields
end
