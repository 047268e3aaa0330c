# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
title Redlock: a node that forgets
about A node crashes and comes back without its data. Plain Redlock lets it vote again at once, and two clients hold the lock. Fenced Redlock does not count it until an operator adopts it.
engine redlock
nodes 5
clients A B
end 9
at 0.40 A n4 cut
at 0.40 A n5 cut
at 0.5 A asks x ttl 8
at 0.9 say A holds x on n1, n2 and n3, which are a majority. It cannot reach the other two.
at 1 n3 forgets
at 1.5 n3 restarts
at 1.6 say n3 has crashed and is back without its data. It no longer knows that A holds x.
at 1.8 B n1 cut
at 1.8 B n2 cut
at 2 B asks x ttl 8
at 3 say B asks n3, n4 and n5. Are they a majority? For plain Redlock they are. In a fenced group a node that has forgotten has no vote.
at 4 B writes x
at 5 A writes x
at 5.2 say Take the tick away from "fenced Redlock" and watch the same moment again.
