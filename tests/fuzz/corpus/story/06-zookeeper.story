# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
title ZooKeeper: a queue of nodes, and one that dies in it
about Each claim is an ephemeral node with a number. The lowest number holds the lock, and each waiter watches only the node before its own. C dies in the middle of the queue.
engine zookeeper
nodes 3
clients A B C D
end 20
at 0.9 say Four clients, an ensemble of three members.
at 1.0 A asks x ttl 4
at 1.2 B asks x ttl 4
at 1.4 C asks x ttl 4
at 1.6 D asks x ttl 4
at 2 say A has the lowest number and holds x. B watches the node of A, C that of B, and D that of C.
at 2.5 C dies
at 2.6 say C is dead. Its session has not ended yet, so its node is still in the queue.
at 8 say The session of C has ended, and its node is gone. D was told, looked again, and watches the node of B now. It did not wake anybody else.
at 8.5 A releases x
at 9 say A deletes its node. Only B is woken.
at 10 B releases x
at 10.5 say D is next: the dead client costs it nothing.
at 12 D writes x
at 13 D releases x
