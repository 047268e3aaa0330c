# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""A way to a redis-server on which requests and answers get lost, stay away, or come late.

    with Proxy(server.port) as proxy:
        rule = proxy.once("release", LOSE_REPLY)
        ... what is done through proxy.port ...
        rule.hit()             # waits until it has happened

It reads what goes through it, so that a rule meets the one request that it names: a script of ours
by its name, anything else by its command.
"""
import hashlib
import queue
import re
import select
import selectors
import socket
import threading

PATIENCE = 60.0

LOSE_REQUEST = "the connection is cut before the request has gone on"
LOSE_REPLY = "the connection is cut when the request has been executed, before its answer"
MUTE = "from its answer on nothing comes back; requests go on"
STOP = "this request and all behind it stay here until let_go(); answers go on"
LATE = "the connection is cut, and the request goes on at let_go()"
KEEP = "its answer and all behind it stay here until let_go(); requests go on"
SLOW = "its answer comes byte by byte"

# The first line of a script of ours; and what scripts are called here that do the same for different
# modes or states.
TITLE = re.compile(rb"-- stile \w+/(\w+)\.lua\n")
KINDS = {"queue": "claim", "take": "claim", "give": "release", "resume": "confirm"}


def kind_of_script(source):
    title = TITLE.match(source)
    name = title.group(1).decode() if title else "script"
    return KINDS.get(name, name)


def command_end(data):
    """Where the first request in data ends, and its words; (0, None) if it is not all there."""
    words, at = [], data.find(b"\r\n") + 2
    if at < 2:
        return 0, None
    for _ in range(int(data[1:at - 2])):
        end = data.find(b"\r\n", at)
        if end < 0 or len(data) < end + 4 + int(data[at + 1:end]):
            return 0, None
        size = int(data[at + 1:end])
        words.append(bytes(data[end + 2:end + 2 + size]))
        at = end + 4 + size
    return at, words


def reply_end(data, at=0):
    """Where the answer at `at` ends; 0 if it is not all there."""
    end = data.find(b"\r\n", at) + 2
    if end < 2:
        return 0
    kind, number = data[at:at + 1], data[at + 1:end - 2]
    if kind == b"$" and int(number) >= 0:
        end += int(number) + 2
        return end if end <= len(data) else 0
    if kind == b"*":
        for _ in range(int(number)):
            end = reply_end(data, end)
            if not end:
                return 0
    return end


class Rule:
    """What happens, once, to the next request of its kind."""

    def __init__(self, proxy, kind, action):
        self.proxy, self.kind, self.action = proxy, kind, action
        self.happened, self.link = threading.Event(), None

    def hit(self):
        assert self.happened.wait(PATIENCE), "no %s came" % self.kind

    def let_go(self):
        self.proxy.do(self.link.let_go)


class Link:
    """One connection of a client, and the one behind it."""

    def __init__(self, proxy, client):
        self.proxy, self.client = proxy, client
        self.server = socket.create_connection(("127.0.0.1", proxy.target))
        for side in self.client, self.server:
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            proxy.selector.register(side, selectors.EVENT_READ, self)
        self.requests, self.replies = bytearray(), bytearray()
        self.asked, self.kinds = [], set()  # what is to be answered; what was ever asked
        self.kept = self.kept_replies = None
        self.mute = False

    def close(self, *sides):
        for side in sides or (self.client, self.server):
            if side.fileno() >= 0:
                self.proxy.selector.unregister(side)
                side.close()
        self.proxy.notify()

    def open(self):
        return self.client.fileno() >= 0

    def freeze(self):
        self.kept = self.kept or b""
        self.mute = True

    def ready(self, side):
        try:
            self.take(side)
        except OSError:  # a side has gone
            self.close()

    def receive(self, side):
        try:
            return side.recv(65536)
        except ConnectionResetError:  # it left without having read all
            return b""

    def is_owed(self):
        """Something was kept that may still be let go, or what a rule is about is being executed:
        neither depends on how long a client stays."""
        return self.server.fileno() >= 0 and (self.kept or any(self.asked))

    def take(self, side):
        got = self.receive(side)
        if not got and side is self.client and self.is_owed():
            self.close(self.client)
        elif not got:
            self.close()
        elif side is self.client:
            self.requests += got
            self.pass_requests()
        else:
            self.replies += got
            self.pass_replies()

    def pass_requests(self):
        while self.open():
            end, words = command_end(self.requests)
            if not end:
                return
            data = bytes(self.requests[:end])
            del self.requests[:end]
            self.pass_request(self.proxy.kind_of(words), data)

    def pass_request(self, kind, data):
        if self.kept is not None:
            self.kept += data
            return
        rule = self.proxy.rule_for(kind)
        action = rule and rule.action
        if rule:
            rule.link = self
        self.kinds.add(kind)
        self.asked.append(rule if action in (LOSE_REPLY, MUTE, KEEP, SLOW) else None)
        if action in (STOP, LATE):
            self.kept = data
        elif action != LOSE_REQUEST:
            self.server.sendall(data)
        self.proxy.count(kind)
        if action == LOSE_REQUEST:
            self.close()
        elif action == LATE:
            self.close(self.client)
        if action in (LOSE_REQUEST, STOP, LATE):
            rule.happened.set()

    def pass_replies(self):
        while self.server.fileno() >= 0:
            end = reply_end(self.replies)
            if not end:
                return
            data = bytes(self.replies[:end])
            del self.replies[:end]
            rule = self.asked.pop(0) if self.asked else None
            if self.open():
                self.pass_reply(rule, data)
            if not self.open() and not self.is_owed():
                self.close()
            if rule:
                rule.happened.set()

    def record(self, data):
        try:
            self.client.sendall(data)
        except OSError:  # it has gone
            self.close(self.client)

    def pass_reply(self, rule, data):
        self.mute |= bool(rule) and rule.action == MUTE
        if rule and rule.action == KEEP:
            self.kept_replies = b""
        if self.kept_replies is not None:
            self.kept_replies += data
        elif rule and rule.action == LOSE_REPLY:
            self.close()
        elif rule and rule.action == SLOW:
            for i in range(len(data)):
                self.record(data[i:i + 1])
        elif not self.mute:
            self.record(data)

    def let_go(self):
        if self.kept_replies is not None:
            if self.client.fileno() >= 0:  # else it left meanwhile
                self.client.sendall(self.kept_replies)
            self.kept_replies = None
            return
        kept, self.kept = self.kept, None
        if self.server.fileno() >= 0:
            self.server.sendall(kept)
        if not self.open():  # nobody is left to hear the answer: wait for it, so that it is done
            self.server.settimeout(PATIENCE)
            self.server.recv(65536)
            self.close(self.server)


class Proxy:
    link_class = Link

    def __init__(self, target):
        self.target = target
        self.selector = selectors.DefaultSelector()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.listener.getsockname()[1]
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.inside, self.outside = socket.socketpair()
        self.selector.register(self.inside, selectors.EVENT_READ)
        self.jobs = queue.SimpleQueue()
        self.rules, self.links, self.scripts, self.counts = [], [], {}, {}
        self.counted = threading.Condition()
        self.running = True
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    # ---- on the proxy's own thread ----

    def run(self):
        while self.running:
            for key, _ in self.selector.select():
                if key.fileobj is self.listener:
                    self.accept_one()
                elif key.fileobj is self.inside:
                    self.inside.recv(1)
                    self.jobs.get()()
                elif key.fileobj.fileno() >= 0:
                    key.data.ready(key.fileobj)

    def accept_one(self):
        client, _ = self.listener.accept()
        try:
            self.links.append(self.link_class(self, client))
        except OSError:  # nobody is there
            client.close()

    def kind_of(self, words):
        verb = words[0].upper()
        if verb == b"EVAL":
            sha = hashlib.sha1(words[1]).hexdigest().encode()
            self.scripts[sha] = kind_of_script(words[1])
            return self.scripts[sha]
        if verb == b"EVALSHA":
            return self.scripts.get(words[1], "script")
        return verb.decode().lower()

    def rule_for(self, kind):
        for rule in self.rules:
            if rule.kind == kind:
                self.rules.remove(rule)
                return rule
        return None

    def count(self, kind):
        with self.counted:
            self.counts[kind] = self.counts.get(kind, 0) + 1
        self.notify()

    def notify(self):
        with self.counted:
            self.counted.notify_all()

    def freeze_here(self):
        for link in self.links:
            if link.open():
                link.freeze()

    def cut_here(self, kind):
        for link in self.links:
            if not kind or kind in link.kinds:
                link.close()

    def accept_here(self, willing):
        if willing:
            self.selector.register(self.listener, selectors.EVENT_READ)
        else:
            self.selector.unregister(self.listener)

    def end_here(self):
        self.running = False
        for link in self.links:
            link.close()

    # ---- for the test ----

    def do(self, job):
        """Runs it on the thread, and returns when it is done."""
        done = threading.Event()
        self.jobs.put(lambda: (job(), done.set()))
        self.outside.send(b"x")
        assert done.wait(PATIENCE)

    def once(self, kind, action):
        rule = Rule(self, kind, action)
        self.do(lambda: self.rules.append(rule))
        return rule

    def cut(self, kind=None):
        """Every connection, or those that have asked for this."""
        self.do(lambda: self.cut_here(kind))

    def freeze(self):
        """What is connected goes silent in both directions and never ends; new connections work."""
        self.do(self.freeze_here)

    def accept(self, willing):
        """Unwilling: connections get no answer until it is willing again."""
        self.do(lambda: self.accept_here(willing))

    def asked(self, kind=None):
        """How many requests (of this kind) have come through."""
        with self.counted:
            return self.counts.get(kind, 0) if kind else sum(self.counts.values())

    def until_asked(self, kind, times):
        with self.counted:
            came = self.counted.wait_for(lambda: self.counts.get(kind, 0) >= times, PATIENCE)
        assert came, "%s was asked %d times" % (kind, self.asked(kind))

    def anybody_here(self):
        waiting, _, _ = select.select([self.listener], [], [], 0)
        return bool(waiting) or any(link.open() for link in self.links)

    def until_left(self):
        """For a process that has ended: what it sent may still be on its way here."""
        with self.counted:
            left = self.counted.wait_for(lambda: not self.anybody_here(), PATIENCE)
        assert left, "somebody is still connected"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.do(self.end_here)
        self.thread.join()
        for part in self.listener, self.inside, self.outside, self.selector:
            part.close()
