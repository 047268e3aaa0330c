# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
title Redis: the holder dies
about With a lease, the lock of a dead holder becomes free when the lease ends, and not before: until then, nobody can tell a dead holder from a slow one. Then the first waiter is served.
engine redis
clients A B C
end 9
at 0.5 A asks x ttl 3
at 0.9 B asks x ttl 3
at 1.1 C asks x ttl 3
at 1.3 say A holds x; B and C wait in the queue on the server, in this order.
at 1.5 A dies
at 1.6 say A is dead, and its key is still there. The server only knows when the lease ends.
at 4.2 say The lease has ended, and the server has handed the key to B, which was first in the queue.
at 4.5 B writes x
at 5 B releases x
at 5.2 say B has released x, and C has it at once: the release named the next in the queue.
at 6 C writes x
at 6.5 C releases x
