# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""A wire to any server, which can break in one direction only.

    with Wire(server.port) as wire:
        ... what is done through wire.port ...
        wire.fail(UP)      # what clients say stays on the way
        wire.heal()        # and comes late

As in a real network nothing is lost while a connection lasts: it comes when the way is free again,
even if its sender has gone elsewhere long ago. Only the end of a connection gets lost.
"""
import selectors
import socket

from proxy import Proxy

UP, DOWN, BOTH = ("up",), ("down",), ("up", "down")


class Way:
    """From one socket to the other."""

    def __init__(self, wire, name, source, target):
        self.wire, self.name, self.source, self.target = wire, name, source, target
        self.kept, self.over, self.back = b"", False, None

    def broken(self):
        return self.name in self.wire.broken

    def take(self):
        """False if the connection has ended, and the other side hears of it."""
        try:
            got = self.source.recv(65536)
        except OSError:
            got = b""
        self.kept += got
        if not got:
            self.over = True
            self.wire.selector.unregister(self.source)
        return (got or self.broken()) and self.pass_on()

    def pass_on(self):
        if self.kept and not self.broken():
            kept, self.kept = self.kept, b""
            try:
                self.target.sendall(kept)
            except OSError:
                return self.back.over  # that it has gone is known, and is on its way
        return True


class Stretch:
    """One connection of a client, and the one behind it."""

    def __init__(self, wire, client):
        server = socket.create_connection(("127.0.0.1", wire.target))
        self.ways = {client: Way(wire, "up", client, server),
                     server: Way(wire, "down", server, client)}
        up, down = self.ways.values()
        up.back, down.back = down, up
        for side in self.ways:
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            wire.selector.register(side, selectors.EVENT_READ, self)

    def ready(self, side):
        if not self.ways[side].take():
            self.close()

    def heal(self, sift):
        for way in self.ways.values():
            way.kept = sift(way.kept) if way.name == "up" else way.kept
        if not all([way.pass_on() for way in self.ways.values() if way.target.fileno() >= 0]):
            self.close()

    def close(self):
        for side, way in self.ways.items():
            if side.fileno() >= 0:
                if not way.over:
                    way.wire.selector.unregister(side)
                side.close()

    def is_open(self):
        return not any(way.over or side.fileno() < 0 for side, way in self.ways.items())


class Wire(Proxy):
    link_class = Stretch
    broken = ()

    def fail(self, ways):
        self.do(lambda: setattr(self, "broken", ways))

    def heal(self, sift=bytes):
        """sift: what of it comes late; the rest is lost for ever."""
        self.fail(())
        self.do(lambda: [link.heal(sift) for link in self.links])

    def in_use(self):
        """Whether a client has a connection over it."""
        return any(link.is_open() for link in list(self.links))
