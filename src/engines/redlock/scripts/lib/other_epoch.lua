-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- other_epoch.lua: the reply of a node whose epoch is not the caller's.
--
-- Needs call, node, and the node's group in state[1].
local record = call('HMGET', node, 'was', 'seats', 'past')
return {-1, state[1] or '', record[1] or '', record[2] or '', record[3] or ''}
