# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the contract suite on a ZooKeeper of its own:

    with_zookeeper.py PROGRAM URL MEMBERS [FILTER]

In the URL, @HOSTS@ stands for the members."""
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "servers"))
from zookeeper_server import ZookeeperServer  # noqa: E402


def run(program, url, members, *rest):
    with ZookeeperServer(int(members)) as server:
        return subprocess.run([program, url.replace("@HOSTS@", server.hosts), *rest]).returncode


sys.exit(run(*sys.argv[1:]))
