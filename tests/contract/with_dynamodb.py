# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the contract suite on a dynalite of its own:

    with_dynamodb.py PROGRAM OPTIONS [FILTER]

OPTIONS are further parameters of the URL, such as "&poll=50"."""
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "servers"))
from dynamodb_server import ENV, DynamoServer, is_installed  # noqa: E402


def run(program, options, *rest):
    if not is_installed():
        print("1..0 # SKIP dynalite of npm is not installed: tools/npm-clients BUILD")
        return 0
    with DynamoServer() as server:
        server.create("contract")
        return subprocess.run([program, server.url("contract", options), *rest],
                              env={**os.environ, **ENV}).returncode


sys.exit(run(*sys.argv[1:]))
