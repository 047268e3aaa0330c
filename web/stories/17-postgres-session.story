# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
title PostgreSQL: a lock that belongs to its session
about Plain clients on a model of PostgreSQL's advisory locks: stile's own engine runs in libpq, which cannot run in this page. A dead holder gives way at once. A paused one keeps the lock until somebody ends its session, and may still write after that.
engine sessions
clients A B C dba
end 9
at 0.45 say Three programs and an administrator, one connection each. They send SQL by hand; the server is a model of PostgreSQL's session locks.
at 0.5 A locks x
at 0.8 say The session of A has the lock. There is no lease: it is A's for as long as this connection lives. A has drawn a token from a sequence, too.
at 0.9 B locks x
at 1.1 C locks x
at 1.3 say B and C have no answer yet: their statements wait inside the server, in this order.
at 1.5 A dies
at 1.6 say A is dead. Its kernel has closed the connection, which ended the session, and B was granted x at once: there was no lease to wait for.
at 2 B pauses
at 2.1 say B is paused. Its kernel keeps the connection open, so the session lives, and so does the lock.
at 5 say B does not run, and C waits: for hours, if it must. That is safe, and stuck. stile's engine sets idle_session_timeout to the lease, so the server itself ends the session of a holder that has stopped.
at 5.5 dba ends B
at 5.6 say The administrator has ended the session of B, and C has x. B is paused and knows nothing of it.
at 6 C writes x
at 6.5 B writes x
at 7 B resumes
at 7.2 say B has woken up and sent the write that it had prepared, with its old token. A store that checks tokens refuses it; without that check, the update of C is lost.
at 7.5 B checks x
at 7.7 say Only now, as it uses its connection, B learns that its session is over. stile's engine watches its connections, and declares a loss at its own deadline even if it hears nothing.
at 8 C unlocks x
