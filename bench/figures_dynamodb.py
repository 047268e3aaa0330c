# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""The figures of dynamodb, on a dynalite of its own: compared with two bare signed requests, and what a
parked waiter asks for."""
import contextlib
import os
import pathlib
import subprocess
import sys
import time

from figures import NotMeasured, compare, row, time_text

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "servers"))
from dynamodb_proxy import DynamoProxy  # noqa: E402
from dynamodb_server import ENV, DynamoServer, is_installed  # noqa: E402

PAIRS = 1500  # of each, one by one in turn: the server is busier at one time than at another
PARKED_S = 30


@contextlib.contextmanager
def server():
    if not is_installed():
        raise NotMeasured("dynalite of npm is not installed: STILE_NPM")
    os.environ.update(ENV)
    with DynamoServer() as started:
        started.create("bench")
        yield started


def pair(bench):
    with server() as dynamo:
        bench.run("pair", dynamo.url("bench"), "dynamodb", 5, 64, 1, 1)  # node compiles what is hot
        lines = bench.run("pair", dynamo.url("bench"), "dynamodb", bench.rounds(PAIRS), 1, 1, 1)
    ours, bare, ratio = compare(lines, "series", "one", "peer_one", "p50_ns")
    return [row("dynamodb: acquire+release, p50", time_text(ours), "two bare requests " + time_text(bare),
                ratio, "1.2 x", ratio <= 1.2)], {"dynamodb_pair": lines}


def parked(bench):
    """Requests of a waiter behind a holder that does not renew meanwhile."""
    with server() as dynamo, DynamoProxy(dynamo.port) as proxy:
        stile = bench.stile
        url = dynamo.url("bench", port=proxy.port)
        subprocess.run([stile, "acquire", "--ttl", "10m", "-e", url, "x"], check=True,
                       stdout=subprocess.DEVNULL)
        with subprocess.Popen([stile, "acquire", "-e", url, "x"], stdout=subprocess.DEVNULL) as waiter:
            time.sleep(5)
            before = proxy.operations.total()
            time.sleep(PARKED_S)
            per_s = (proxy.operations.total() - before) / PARKED_S
            waiter.kill()
    return [row("dynamodb: parked waiter, requests per second", "%.2f" % per_s, "", None, "1",
                per_s <= 1)], {"dynamodb_parked": per_s}


ALL = {"dynamodb-pair": pair, "dynamodb-parked": parked}
