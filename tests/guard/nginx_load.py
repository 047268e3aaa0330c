# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Eight clients with growing tokens write through nginx to one resource, with random pauses, while nginx
is reloaded and a worker is killed: the upstream never sees a smaller token after a larger one."""
import http.client
import itertools
import os
import random
import signal
import sys
import threading
import time

from nginx_kit import PATIENCE_S, Nginx, Upstream, expect
from tap import run_cases

CLIENTS = 8
TOKENS = 150
WRITES = 6  # with one token, if none is refused
PAUSE_MAX_S = 0.004
REST_MAX_S = 0.1  # before the next token


class SlowStore(Upstream):
    """Pauses between reading a request and writing what it says, as a delayed write would."""

    def __init__(self):
        super().__init__()
        self.written = []

    def work(self, handler, token, body):
        if token is not None:
            time.sleep(random.uniform(0, PAUSE_MAX_S))
            with self.lock:
                self.written.append((int(token), body))
        handler.reply("written")


class Holders:
    """Clients that get growing tokens as from a lock, and write with them until they are refused, or long
    after the next one has begun."""

    def __init__(self, nginx):
        self.nginx, self.tokens = nginx, itertools.count(1)
        self.lock = threading.Lock()
        self.acknowledged, self.stale, self.failed = [], 0, 0
        self.granted = threading.Condition(self.lock)
        self.last = 0

    def grant(self):
        with self.lock:
            self.last = next(self.tokens)
            self.granted.notify_all()
            return self.last

    def await_token(self, token):
        with self.lock:
            assert self.granted.wait_for(lambda: self.last >= token, PATIENCE_S)

    def write(self, token, text):
        """True unless it is refused for good."""
        try:
            status = self.nginx.status("accounts", token, "redis:a", body=text)
        except (OSError, http.client.HTTPException):  # of a worker that was killed: nobody knows
            status = 0
        with self.lock:
            if status == 200:
                self.acknowledged.append((token, text))
            self.stale += status == 412
            self.failed += status not in (200, 412)
        return status != 412

    def hold(self):
        while (token := self.grant()) <= TOKENS:
            for number in range(WRITES):
                if not self.write(token, "%d.%d" % (token, number)):
                    break
                time.sleep(random.uniform(0, PAUSE_MAX_S))
            time.sleep(random.uniform(0, REST_MAX_S))

    def start(self):
        threads = [threading.Thread(target=self.hold, daemon=True) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        return threads


def check(upstream, holders):
    tokens = [token for token, _ in upstream.written]
    late = [(a, b) for a, b in zip(tokens, tokens[1:]) if b < a]
    expect(late, [])
    expect(set(holders.acknowledged) - set(upstream.written), set())
    print("# %d written, %d refused as stale, %d failed" % (len(tokens), holders.stale, holders.failed))
    assert holders.stale > CLIENTS and len(tokens) > TOKENS / 3


def under_load(trouble, **how):
    upstream = SlowStore()
    try:
        with Nginx(upstream.port, **how) as nginx:
            holders = Holders(nginx)
            threads = holders.start()
            trouble(nginx, holders)
            for thread in threads:
                thread.join(PATIENCE_S)
                assert not thread.is_alive(), nginx.log
            check(upstream, holders)
            return holders
    finally:
        upstream.close()


def later_writes_are_not_overwritten():
    def reload_often(nginx, holders):
        for token in range(TOKENS // 4, TOKENS, TOKENS // 4):
            holders.await_token(token)
            nginx.reload(ready=False)
    expect(under_load(reload_often).failed, 0)


def later_writes_are_not_overwritten_when_a_worker_is_killed():
    def kill_one(nginx, holders):
        holders.await_token(TOKENS // 2)
        os.kill(nginx.worker_pids()[0], signal.SIGKILL)
    # The pauses of the upstream are short, and so is the time that it has to settle; yet a busy machine
    # must not make it look late.
    under_load(kill_one, SETTLE_MS="2000")


if __name__ == "__main__":
    sys.exit(run_cases([
        later_writes_are_not_overwritten,
        later_writes_are_not_overwritten_when_a_worker_is_killed,
    ]))
