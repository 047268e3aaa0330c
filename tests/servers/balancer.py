# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""A load balancer in front of a server, which answers 503 while it takes that for away.

    with Balancer(server.port) as balancer:
        ... what is done through balancer.port ...
        balancer.fail()    # cuts all connections, and answers new ones by itself
        balancer.heal()
"""
import socket

from wire import Stretch, Wire

ANSWER = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Balanced(Stretch):
    def __init__(self, balancer, client):
        if balancer.away:
            client.sendall(ANSWER)
            client.shutdown(socket.SHUT_WR)
            balancer.refused.append(client)  # closed now, the answer might not arrive
            self.ways = {}
        else:
            super().__init__(balancer, client)


class Balancer(Wire):
    link_class = Balanced

    def __init__(self, target):
        self.away, self.refused = False, []
        super().__init__(target)

    def fail(self):
        self.do(lambda: setattr(self, "away", True))
        self.cut()

    def heal(self):
        self.do(lambda: setattr(self, "away", False))

    def __exit__(self, *args):
        super().__exit__(*args)
        for client in self.refused:
            client.close()
