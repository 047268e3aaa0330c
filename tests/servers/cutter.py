# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Stands between a client and a server. The first connection over which these words go to the server
is cut when their answer comes, which nobody sees.

    with Cutter(server.port, b"words") as cutter:
        cutter.port, cutter.cut
"""
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
