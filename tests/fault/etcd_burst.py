# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Thousands of claims of one client at once: they are queued, and none fails."""
import os
import subprocess

from cluster_kit import SOAK, expect
from etcd_fault_kit import keys_of, on_server
from kit import run_tests

CLAIMS = [100, 1000, 10000, 50000] if SOAK else [5000]
PATIENCE_S = 1200 if SOAK else 120


@on_server()
def burst(t, server):
    """All at once, and behind each of them a waiter: all are granted, in their time"""
    for claims in CLAIMS:
        done = subprocess.run([os.environ["BURST"], server.url, str(claims), "10000"],
                              stdout=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=False)
        expect(done.returncode, 0)
        print("# " + done.stdout.rstrip())
    expect(server.ctl("get", "--prefix", "--keys-only", "burst-"), "")
    expect(keys_of(server), [])


run_tests([burst])
