# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
title SETNX, 1: the holder dies
about A program locks with SET NX and no expiry, and is killed before it can delete the key. From then on nobody can take the lock, until a person deletes the key by hand.
engine redis
clients A B
end 8
at 0.45 say Two programs lock by hand: SET NX to take the lock, DEL to release it. There is no expiry.
at 0.5 A sets x
at 0.6 say A holds x.
at 1 B sets x every 0.5
at 1.1 say B is refused, and tries again every half second.
at 2 A dies
at 2.1 say A is killed. Its key has no expiry, so it stays.
at 6 say B will try forever. A lock needs an expiry, or a session that ends with its holder.
