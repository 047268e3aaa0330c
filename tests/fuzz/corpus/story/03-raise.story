# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
title Fencing: raise before you read
about B is the new holder, and reads before it writes. If its first act is to raise the guard, the late write of A is refused. If it only reads, the write of A lands between the read and the write of B, and is overwritten: take the tick away and compare.
engine redis
clients A B
end 9
at 0.5 A asks x ttl 2
at 0.9 say A holds x.
at 1 A pauses
at 1.2 B asks x ttl 4
at 1.3 say A is paused. Its lease runs out.
at 3.5 say B holds x and has read the store. If it has also raised the guard, the store knows B's token already.
at 4 A writes x
at 4.1 A resumes
at 4.3 say A has woken up and written. Was its write refused? That depends on whether B raised the guard before it read.
at 5 B writes x
at 5.2 say B has written what it computed from its read. If A's write was accepted in between, it is lost now, although both clients were told that their writes succeeded.
