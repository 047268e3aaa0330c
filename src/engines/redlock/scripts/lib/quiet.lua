-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- quiet.lua: how long an adopted node still takes no claims and hands nothing over.
--
-- Needs call, node. The node may have forgotten leases that are still running.
-- Returns ms, or nil if the node is not quiet (any longer).
local function quiet_ms(until_ms)
  if not until_ms then return nil end
  local time = call('TIME')
  local left = until_ms - time[1] * 1000 - math.floor(time[2] / 1000)
  if left > 0 then return left end
  call('HDEL', node, 'quiet')
end
