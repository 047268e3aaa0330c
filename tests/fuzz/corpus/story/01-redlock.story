# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
title Redlock: a majority of five
about A client holds the lock while a majority of independent nodes stores its key. Stop nodes, cut paths or let a clock jump, and see what still works.
engine redlock
nodes 5
clients A B
end 9
at 0.45 say Two clients and five independent nodes. The nodes do not know each other; only the clients know all five.
at 0.5 A asks x ttl 3
at 0.6 say A has the keys of a majority, and a token from them. Its lease began when it sent the first request, so the time that passed since then is already deducted.
at 1 B asks x ttl 3
at 1.1 say B finds A's key on every node and waits in their queues. It takes no node away from A.
at 1.6 n4 stops
at 1.7 say n4 no longer answers. Four nodes are a majority: A keeps its lock, and renews its lease on them.
at 2.6 A writes x
at 3 A releases x
at 3.3 say A has deleted its keys. The nodes hand them to B, which is next in their queues, and B collects a majority of its own.
at 4 B writes x
at 5 n4 continues
at 5.3 say n4 is back. It has missed a release and a grant, which does no harm: no majority depends on it.
at 6 B releases x
