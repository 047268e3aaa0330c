# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
title A crowd that retries in step
about Seven programs find the lock taken and try again, each exactly 200 ms after it was refused. They stay in step, and the server meets all of them at once, again and again. Compare the next two stories.
engine redis
clients A B C D E F G H
end 5
at 0.45 say A holds the lock. Seven programs try every 200 ms, as many libraries do.
at 0.5 A sets x ttl 4
at 1.000 B sets x ttl 4 every 0.2
at 1.001 C sets x ttl 4 every 0.2
at 1.002 D sets x ttl 4 every 0.2
at 1.003 E sets x ttl 4 every 0.2
at 1.004 F sets x ttl 4 every 0.2
at 1.005 G sets x ttl 4 every 0.2
at 1.006 H sets x ttl 4 every 0.2
at 1.9 say They came at the same moment, and they come back at the same moment.
at 2.5 A deletes x
at 2.8 say Who gets the lock is decided by chance, up to 200 ms after it became free.
