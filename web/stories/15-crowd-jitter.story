# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
title A crowd that retries with jitter
about The same seven programs, each with a random pause between 100 and 300 ms. The server meets them one by one, but most of their requests still find the lock taken, and the order is still left to chance.
engine redis
clients A B C D E F G H
end 5
at 0.45 say A holds the lock. Seven programs try again after a random pause.
at 0.5 A sets x ttl 4
at 1.000 B sets x ttl 4 every 0.2 jitter
at 1.001 C sets x ttl 4 every 0.2 jitter
at 1.002 D sets x ttl 4 every 0.2 jitter
at 1.003 E sets x ttl 4 every 0.2 jitter
at 1.004 F sets x ttl 4 every 0.2 jitter
at 1.005 G sets x ttl 4 every 0.2 jitter
at 1.006 H sets x ttl 4 every 0.2 jitter
at 1.9 say Their requests are spread out. There are still about 35 of them in each second.
at 2.5 A deletes x
at 2.8 say Who gets the lock is decided by chance, up to 200 ms after it became free.
