# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
title SETNX, 3: deleting somebody else's lock
about A is late, and deletes a key that has become B's. C gets in while B is at work.
engine redis
clients A B C
end 8
at 0.5 A sets x ttl 1
at 0.6 say A holds x for one second.
at 0.8 B sets x ttl 4 every 0.2
at 2.1 say A was slow, and its key has expired. B has x now, for four seconds.
at 2.3 C sets x ttl 4 every 0.2
at 2.6 A deletes x
at 2.7 say A is done and deletes "its" key. DEL does not look whose key it is.
at 3.2 say C has x as well. B has done nothing wrong, and shares its lock with C. A release must compare the owner before it deletes.
at 3.4 B writes x
at 3.6 C writes x
