# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
title Redis: all keys are gone
about FLUSHALL, an eviction, a failover to a replica that lags: a single server forgets the lock, and nothing can tell the holder. Tokens still grow, so the store can tell the two holders apart.
engine redis
clients A B
end 8
at 0.5 A asks x ttl 5
at 1 say A holds x.
at 2 n1 flushes
at 2.1 B asks x ttl 5
at 2.15 say The server has forgotten everything. B is granted the lock, while A relies on it until its next renewal.
at 2.4 B writes x
at 2.5 A writes x
at 2.6 say Two holders, two writes. The counter of tokens is gone, too; a new one begins at the server's clock, which is larger than all tokens before.
