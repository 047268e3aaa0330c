# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Ways to any server that can be cut, and ways on which answers are damaged.

    with Forward(server.port) as way:
        ... what is done through way.port ...
        way.cut()              # all connections over it; new ones are taken
        way.forget_next(1)     # the same, and the next ones are accepted, but nothing comes of them
    with Damage(server.port, seed) as way:
        ...                    # bytes are changed, lost or added, by the seed
"""
import contextlib
import random
import socket
import threading

BYTES = (0, 0xff, 0x7f, 0x80)


class Forward:
    def __init__(self, target, address="127.0.0.1", port=0):
        self.target = target
        self.listener = socket.create_server((address, port))
        self.port = self.listener.getsockname()[1]
        self.sockets, self.accepted, self.answers, self.forgets = [], 0, 0, 0
        threading.Thread(target=self.serve, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        end(self.listener)
        self.listener.close()
        self.cut()

    def cut(self):
        for one in self.sockets[:]:
            end(one)

    def forget_next(self, times):
        """As a server that was restarted: so many times the connections that it had are forgotten.
        How many."""
        self.forgets = n = sum(one.fileno() >= 0 for one in self.sockets) // 2 * times
        self.cut()
        return n

    def serve(self):
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            self.accepted += 1
            if self.forgets:
                self.forgets -= 1
                self.sockets.append(client)
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                client.close()
                continue
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.sockets += [client, server]
            for source, other, change in ((client, server, bytes), (server, client, self.change)):
                threading.Thread(target=copy, args=(source, other, change), daemon=True).start()

    def change(self, got):
        self.answers += 1
        return got


def end(one):
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)


def copy(source, other, change):
    with contextlib.suppress(OSError):
        while got := source.recv(65536):
            other.sendall(change(got))
    end(source)
    end(other)
    source.close()


class Damage(Forward):
    def __init__(self, target, seed):
        self.random = random.Random(seed)
        self.rate = self.random.choice((.001, .01, .05))
        self.spared = self.random.choice((0, 1, 2, 5, 8))  # answers that come as they are
        super().__init__(target)

    def change(self, got):
        self.spared -= 1
        if self.spared >= 0:
            return got
        got, chance = bytearray(got), self.random.random()
        at, n = self.random.randrange(len(got)), self.random.randrange(1, 9)
        if chance < .1:
            del got[at:at + n]
        elif chance < .2:
            got[at:at] = bytes(self.random.randrange(256) for _ in range(n))
        for i in range(len(got)):
            if self.random.random() < self.rate:
                got[i] = self.random.choice((*BYTES, self.random.randrange(256)))
        return bytes(got)
