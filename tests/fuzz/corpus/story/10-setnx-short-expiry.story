# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
title SETNX, 2: the work takes longer than the expiry
about The key expires after one second, and the work takes three. Nothing renews the key and nothing tells the holder, so two programs work at the same time.
engine redis
clients A B
end 8
at 0.45 say Two programs lock by hand, this time with an expiry of one second.
at 0.5 A sets x ttl 1
at 0.6 say A holds x, and starts work that takes three seconds.
at 0.8 B sets x ttl 1 every 0.2
at 2 say The key of A has expired, and B has x. A is still at work and does not know.
at 2.2 B writes x
at 2.8 A writes x
at 2.9 say A writes what it computed from old data: the write of B is lost.
at 3 A deletes x
at 4 say The library renews its lock while it works, and reports a loss to its holder before the key expires.
