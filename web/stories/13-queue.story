# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
title A crowd that queues
about Eight clients want the same lock at almost the same moment. They queue on the server and are woken one by one, so there is no stampede when the lock becomes free. Compare the two stories that follow.
engine redis
clients A B C D E F G H
end 8
at 0.45 say Eight clients, one lock.
at 0.50 A asks x
at 0.55 B asks x
at 0.60 C asks x
at 0.65 D asks x
at 0.70 E asks x
at 0.75 F asks x
at 0.80 G asks x
at 0.85 H asks x
at 1.1 say A holds x, and seven wait. They are told when it is their turn, and need not ask before.
at 1.5 A releases x
at 2 B releases x
at 2.5 C releases x
at 3 D releases x
at 3.2 say Each release hands the lock to the next in the queue, by one message to that client alone.
at 3.5 E releases x
at 4 F releases x
at 4.5 G releases x
at 5 H releases x
