-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- hand_over.lua: give the lock's key to the next live waiter.
--
-- Needs call, lock, queue, fence, node; without fences the last two are nil.
-- include: lib/quiet.lua

-- Read once: no script that hands over changes these fields before.
local node_state
local function read_node()
  node_state = node_state or node and call('HMGET', node, 'group', 'quiet', 'highest', 'floor') or {}
  return node_state
end

-- A name without a fence has the highest fence of the node. Numbers stay text where they are only
-- passed on: Lua writes large ones as 1e+15.
local function read_fence(stored)
  local state = read_node()
  local number, floor = string.match(stored or '', '^%d+') or state[3] or '0', state[4]
  -- include: lib/floor.lua
  return number
end

-- A node without an epoch, or a quiet one, must not hand over: its vote could make a second holder.
local function may_hand_over()
  if not node then return true end
  local state = read_node()
  return state[1] and string.find(state[1], '^%x') and not quiet_ms(state[2])
end

-- Returns how many clients received the message; 0 means that the owner's client is gone.
local function notify(owner, message)
  return call('PUBLISH', 'stile:' .. string.sub(owner, 1, 16), message)
end

-- Has the first waiter look by itself after `ms`, in case the new owner dies.
local function notify_next(ms)
  local owner = string.sub(call('LINDEX', queue, '0') or '', 1, 40)
  if owner ~= '' then notify(owner, 'h ' .. owner .. ' ' .. ms) end
end

-- Gives the key to `owner` for a second, within which the owner must confirm. The fence in the
-- message becomes the name's fence: otherwise grants of other names could raise the node's fence
-- meanwhile, and with many new names at once phase 2 would fail again and again.
local function grant(owner, kind)
  if not may_hand_over() then return false end
  local stored = fence and call('GET', fence)
  local number = read_fence(stored)
  if notify(owner, kind .. ' ' .. owner .. ' ' .. number .. ' ' .. lock) == 0 then return false end
  if fence and node and not stored then call('PSETEX', fence, '60000', number) end
  call('SET', lock, owner, 'PX', '1000')
  notify_next(1000)
  return owner
end

-- Grants to the first waiter whose client is subscribed, and returns its owner value, or false.
-- `me` is the caller: when its turn comes it takes the key itself.
local function serve(me)
  if not may_hand_over() then return false end
  while true do
    local entry = call('LPOP', queue)
    if not entry then return false end
    local owner = string.sub(entry, 1, 40)
    if owner == me or grant(owner, 'g') then return owner end
  end
end
