# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
title Fencing: the holder that was paused
about A holds the lock, checks it, and is then paused: a garbage collection, a suspended laptop, a stopped process. No lock can prevent what follows. A store that checks tokens can.
engine redis
clients A B
end 9
at 0.45 say Two clients, one Redis server, and a store that only the holder of x should write to.
at 0.5 A asks x ttl 3
at 0.9 say A holds x. Its token is larger than every token before it.
at 1 A checks x
at 1.05 say A has just checked: it holds the lock. It is about to write.
at 1.1 A pauses
at 1.5 B asks x ttl 3
at 1.6 say A is paused between its check and its write. Nobody can know that, and its lease runs out.
at 3.8 say The lease of A has ended. B holds x now, with a larger token. It has raised the guard and read the store.
at 5 B writes x
at 5.2 say B has written. The store has seen the token of B.
at 6.5 A writes x
at 7 A resumes
at 7.2 say A has woken up and sent the write that it had prepared, with its old token. A store that checks tokens refuses it; without that check, the update of B is lost.
