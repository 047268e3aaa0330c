-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- floor.lua: no fence counts for less than what the node was given when it was adopted.
--
-- Needs number, floor. Both stay text: Lua writes large numbers as 1e+15.
if floor and tonumber(floor) > tonumber(number) then number = floor end
