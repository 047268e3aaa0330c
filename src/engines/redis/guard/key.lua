-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- key: the key of the guard of a resource. It depends on the name only.
--
-- KEYS  1 resource: the name of a lock, or of a data key
-- Returns the key, for example stile:guard:{accounts}.
-- Safe to repeat: it changes nothing.
-- flags: no-writes
-- include: lib/names.lua
if #keys ~= 1 or keys[1] == '' then
  return redis.error_reply('BADCALL the only key is the name of a resource')
end
return guard_of(keys[1])
