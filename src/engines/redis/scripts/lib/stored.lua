-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- stored.lua: the lock as it is: its owner, mark or another client's value; and the record of an
-- exclusive holder, or false. Needs keys.lua, stored.
-- include: lib/value.lua
local value, holder_record = parts_of(stored)
