# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
title Redlock: a clock that jumps
about The first half of Martin Kleppmann's critique: one node's clock jumps ahead, its key expires too early, and two clients have a majority. Compare plain Redlock with tokens that the store checks.
engine redlock
nodes 5
clients A B
end 9
at 0.40 A n4 cut
at 0.40 A n5 cut
at 0.45 say A cannot reach n4 and n5. Three of five nodes are still a majority.
at 0.5 A asks x ttl 8
at 0.9 say A holds x on n1, n2 and n3.
at 1 n3 jumps 20
at 1.1 say The clock of n3 has jumped ahead by 20 s. It takes the lease of A for over.
at 1.3 B n1 cut
at 1.3 B n2 cut
at 1.5 B asks x ttl 8
at 2.2 say B cannot reach n1 and n2, but for B n3, n4 and n5 are free. Now two clients have a majority: once a clock has jumped, exclusion is no longer promised.
at 3 B writes x
at 4 A writes x
at 4.2 say A is the older holder. A store that compares tokens refuses its write; with plain Redlock there is nothing to compare.
