# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Stands between a client and a server. The first connection over which these words go to the server
is cut when their answer comes, which nobody sees.

    with Cutter(server.port, b"words") as cutter:
        cutter.port, cutter.cut

Or other words reach the server instead:

    with Rewriter(server.port, b"words", b"other") as rewriter:
        rewriter.port

Or what a client sends with these words is kept until it is let go:

    with Keeper(server.port, b"words") as keeper:
        keeper.port, keeper.kept.wait(), keeper.go.set()
"""
import contextlib
import select
import socket
import threading


class Cutter:
    def __init__(self, port, words):
        self.target, self.words, self.cut = port, words, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self.target))
            threading.Thread(target=self.pass_on, args=(near, far), daemon=True).start()

    def pass_on(self, near, far):
        cutting = False
        with near, far:
            while True:
                ready, _, _ = select.select([near, far], [], [])
                data = ready[0].recv(65536)
                if not data or (cutting and ready[0] is far):
                    return
                if not self.cut and ready[0] is near and self.words in data:
                    self.cut += 1
                    cutting = True
                (far if ready[0] is near else near).sendall(data)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()


class Rewriter(Cutter):
    """Passes on one text for another of the same length."""
    def __init__(self, port, old, new):
        super().__init__(port, old)
        self.new = new.ljust(len(old))

    def pass_on(self, near, far):
        pump = threading.Thread(target=self.copy, args=(far, near, lambda data: data), daemon=True)
        pump.start()
        self.copy(near, far, lambda data: data.replace(self.words, self.new))

    @staticmethod
    def copy(source, sink, change):
        with source, sink, contextlib.suppress(OSError):
            while data := source.recv(1 << 20):
                sink.sendall(change(data))


class Keeper(Rewriter):
    def __init__(self, port, words):
        super().__init__(port, words, words)
        self.kept, self.go = threading.Event(), threading.Event()

    def pass_on(self, near, far):
        pump = threading.Thread(target=self.copy, args=(far, near, lambda data: data), daemon=True)
        pump.start()
        self.copy(near, far, self.keep)

    def keep(self, data):
        if self.words in data:
            self.kept.set()
            self.go.wait()
        return data
