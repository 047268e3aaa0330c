# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""A fresh ZooKeeper for zookeeper.c, which compares the simulated one with it.

Usage: zookeeper.py PROGRAM
"""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "servers"))
from zookeeper_server import ZookeeperServer  # noqa: E402

with ZookeeperServer() as server:
    code = subprocess.run([sys.argv[1], str(server.members[0].port)], check=False).returncode
sys.exit(code)
