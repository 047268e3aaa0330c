-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- names.lua: from a resource to its guard's key, and back.
--
--   accounts  stile:guard:{accounts}  no hash tag: the name is the tag
--   a{b}c     stile:guard:{b}a{b}c    its own tag, then the name
--   a}b       stile:guard:{4w2}a}b    a } would end the tag early: a tag made for the name's slot
--
-- The key lives in the slot of a data key with the resource's name. Two resources never share one:
-- the first tag has no }, so what follows it is either nothing or the whole name.
local PREFIX = 'stile:guard:'

local function tag_of(name)
  return string.match(name, '^[^{]*{([^}]+)}')
end

-- CRC-16/XMODEM, as a Cluster computes it.
local function crc_of(text)
  local crc = 0
  for i = 1, #text do
    crc = bit.bxor(crc, bit.lshift(string.byte(text, i), 8))
    for _ = 1, 8 do
      crc = bit.lshift(crc, 1)
      if crc >= 65536 then crc = bit.bxor(crc, 69665) end
    end
  end
  return crc
end

-- The register from which 16 zero bits lead to this one.
local function crc_backward(crc)
  for _ = 1, 16 do
    local odd = crc % 2 == 1
    crc = bit.rshift(odd and bit.bxor(crc, 4129) or crc, 1)
    if odd then crc = crc + 32768 end
  end
  return crc
end

-- The first three letters or digits that hash to the slot of a name without a tag. The last two
-- follow from the first one and from the CRC, of which four share a slot.
local function slot_text(name)
  local slot = crc_of(name) % 16384
  for code = string.byte('0'), string.byte('z') do
    for high = 0, 3 do
      local first = string.char(code)
      local last = bit.bxor(crc_backward(slot + high * 16384), crc_of(first))
      local text = first .. string.char(math.floor(last / 256), last % 256)
      if string.find(text, '^[0-9A-Za-z]+$') then return text end
    end
  end
end

local function guard_of(name)
  local tag = tag_of(name)
  if not tag and not string.find(name, '}', 1, true) then return PREFIX .. '{' .. name .. '}' end
  return PREFIX .. '{' .. (tag or slot_text(name)) .. '}' .. name
end

-- nil for a key that is no guard's.
local function resource_of(guard)
  local tag, rest = string.match(guard, '^stile:guard:{([^}]+)}(.*)$')
  local name = rest == '' and tag or rest
  return name and guard_of(name) == guard and name or nil
end
