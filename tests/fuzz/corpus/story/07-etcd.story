# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
title etcd: a lease and a revision
about A claim is a key under a lease. The key that was created first holds the lock, and the revision at which it was created is the fencing token. A is paused until its lease has ended.
engine etcd
nodes 3
clients A B
end 20
at 0.9 say Two clients, a cluster of three members.
at 1 A asks x ttl 3
at 1.5 say A holds x. Its token is the revision at which its key was created.
at 2 B asks x ttl 3
at 2.3 say B has a key, too, with a larger revision. It watches the key of A.
at 2.5 A checks x
at 2.6 A pauses
at 2.7 say A is paused. Its lease is no longer renewed.
at 9 say The lease has ended and etcd has deleted the key of A. B holds x, and has raised the guard.
at 9.5 B writes x
at 11 A writes x
at 11.5 A resumes
at 12 say A wrote with an old revision. The store has seen a larger one, and refuses.
