-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- take_in_turn.lua: take the key after all earlier waiters, or join the queue.
--
-- Needs owner, px, entry, wait, again, and what hand_over.lua needs.
-- include: lib/hand_over.lua

-- Returns the place in the queue; -1: the caller does not wait.
local function enqueue()
  if not wait then return -1 end
  local place = again and call('LPOS', queue, entry) or call('RPUSH', queue, entry) - 1
  call('PEXPIRE', queue, '3600000')
  return place
end

-- Returns nil if the key is the caller's, else the reply. A repeated request finds the result of
-- the first one.
local function take_in_turn()
  local holder = call('GET', lock)
  if holder == owner then
    call('PEXPIRE', lock, px)
    return nil
  end
  if not holder then
    holder = serve(owner)
    if not holder or holder == owner then
      call('SET', lock, owner, 'PX', px)
      return nil
    end
  end
  local place = enqueue()
  return {0, call('PTTL', lock), holder, place}
end
