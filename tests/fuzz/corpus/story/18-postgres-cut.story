# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
title PostgreSQL: a connection that is cut silently
about A firewall forgets a connection, and tells nobody. The server keeps the lock until it gives up the session; the holder works on. Plain clients on a model of PostgreSQL, not stile's engine. Choose "dba" below to end a session yourself.
engine sessions
clients A B dba
option idle_session_timeout=4
end 11
at 0.45 say Two programs lock with SQL. This server ends a session that was silent for four seconds (idle_session_timeout). By default it notices a lost connection after more than two hours, by TCP's keepalive.
at 0.5 A locks x
at 0.8 say The session of A has the lock, and A begins to work. It sends nothing to the server meanwhile.
at 1 B locks x
at 1.2 say B waits inside the server.
at 1.5 A db cut
at 1.6 say A firewall has forgotten the connection of A and drops its packets. Neither end is told: A works on, and for the server the session lives.
at 4.8 say The server has heard nothing from A for four seconds, and has ended its session. B holds x. The message that would tell A does not get through, so two programs rely on the lock.
at 5.2 B writes x
at 6 A writes x
at 6.2 say A writes what it has computed meanwhile; its path to the store is another one. Its token is the older one, and a store that checks tokens refuses it.
at 7 A checks x
at 7.5 say A asks its server, and gets no answer. stile's engine needs none: it counts a deadline of its own from before its last renewal was sent, which is always before the server's, and then declares the loss.
at 8 B unlocks x
at 9 A db open
at 9.2 say The path is open again, and A learns that its session is over.
