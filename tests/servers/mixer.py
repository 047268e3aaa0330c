# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Stands between a client and a PostgreSQL, as a pooler that mixes up answers would.

    with Mixer(server.port, b"words") as mixer:
        mixer.port, mixer.most, mixer.mixed

It renumbers backends, so that clients take it for a pooler. The complete answer to the first request
with these words is kept; with mixer.mixing set, the next request with them is answered by that, its own
answer comes to the request after it, and so on. most: how many requests were under way at once on any of its connections."""
import socket
import struct
import threading


class Way:
    """One connection: what goes up is counted in Syncs, what comes down in ReadyForQuerys."""

    def __init__(self, mixer, near, far):
        self.mixer, self.near, self.far = mixer, near, far
        self.under_way, self.answering, self.kept, self.started = 0, [], b"", False
        self.late = []
        self.lock = threading.Lock()
        for work in self.up, self.down:
            threading.Thread(target=self.guarded, args=(work,), daemon=True).start()

    def guarded(self, work):
        try:
            work()
        except OSError:
            pass
        finally:
            for end in self.near, self.far:
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def up(self):
        data = self.near.recv(65536)  # the startup packet comes whole, over loopback
        while len(data) == 8:  # no TLS and no GSSAPI here
            self.near.sendall(b"N")
            data = self.near.recv(65536)
        self.far.sendall(data)
        rest, words = b"", b""
        while True:
            data = self.near.recv(65536)
            if not data:
                return
            rest += data
            while len(rest) > 4 and len(rest) > struct.unpack("!I", rest[1:5])[0]:
                size = 1 + struct.unpack("!I", rest[1:5])[0]
                words += rest[:size]
                if rest[:1] == b"S":
                    with self.lock:
                        self.under_way += 1
                        self.answering.append(self.mixer.words in words)
                        self.mixer.most = max(self.mixer.most, self.under_way)
                    words = b""
                self.far.sendall(rest[:size])
                rest = rest[size:]

    def down(self):
        rest = b""
        while True:
            data = self.far.recv(65536)
            if not data:
                return
            rest += data
            while len(rest) > 4 and len(rest) > struct.unpack("!I", rest[1:5])[0]:
                size = 1 + struct.unpack("!I", rest[1:5])[0]
                self.pass_down(rest[:size])
                rest = rest[size:]

    def pass_down(self, message):
        if message[:1] == b"K":
            message = message[:5] + struct.pack("!I", 1) + message[9:]
        if not self.started:
            self.started = message[:1] == b"Z"
            self.near.sendall(message)
            return
        self.kept += message
        if message[:1] != b"Z":
            return
        answer, self.kept = self.kept, b""
        with self.lock:
            self.under_way -= 1
            meant = self.answering.pop(0)
        if meant and self.mixer.mixing and self.mixer.kept:
            self.late.append(self.mixer.kept)
            self.mixer.mixing = False
            self.mixer.mixed += 1
        elif meant and not self.mixer.kept:
            self.mixer.kept = answer
        self.late.append(answer)
        self.near.sendall(self.late.pop(0))


class Mixer:
    def __init__(self, port, words):
        self.target, self.words = port, words
        self.mixing, self.kept, self.mixed, self.most = False, b"", 0, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            Way(self, near, socket.create_connection(("127.0.0.1", self.target)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()
