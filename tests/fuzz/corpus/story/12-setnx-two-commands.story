# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
title SETNX, 4: killed between SETNX and EXPIRE
about Two commands are not one. A program that dies between SETNX and EXPIRE leaves a key that never expires.
engine redis
clients A B
end 8
at 0.45 say A takes the lock with SETNX, and sets the expiry with a second command. Between the two it dies.
at 0.5 A sets x
at 0.505 A dies
at 0.6 say A has died between SETNX and EXPIRE.
at 1 B sets x every 0.5
at 5 say B tries again and again. SET NX PX sets the key and its expiry in one step.
