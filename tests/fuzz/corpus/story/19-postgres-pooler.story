# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
title PostgreSQL: behind a transaction pooler
about A pooler such as pgbouncer lends the sessions of a server to many clients. In transaction mode two clients may use the same one in turn: both lock x in it, and both get it. Plain clients on a model, not stile's engine.
engine sessions
clients A B
option pooler=transaction
end 8
at 0.45 say Two programs reach PostgreSQL through a pooler, which lends them a session of the server for one transaction at a time. This is a model with one session.
at 0.5 A tries x
at 0.8 say The answer is t: the lock is taken. But it belongs to the session, and the session is the pooler's.
at 1 B tries x
at 1.3 say B was lent the same session. For the server, the holder has locked x a second time, so the answer is t again. Now two clients believe that they hold x.
at 2 B writes x
at 2.5 A writes x
at 2.7 say The tokens come from a sequence, which no pooler can mix up. A has the smaller one, and a store that checks tokens refuses it.
at 3.5 A dies
at 3.7 say A is dead, and its lock stays: only its connection to the pooler has ended, and the session lives on.
at 5 B unlocks x
at 5.2 say B has unlocked x, and x is still locked: the session has locked it twice, and nobody is left to unlock it again.
at 6 say stile's engine tests its connection when it opens, and refuses a pooler that may mix up sessions. With mode=table, where locks are rows, it works behind one.
