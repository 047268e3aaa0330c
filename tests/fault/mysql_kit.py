# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""What the tests of MariaDB servers in trouble have in common."""
import json

from sql_kit import lost, on_servers_of, refused, token_of, use, wait_for
from mysql_server import MysqlServer

__all__ = ["findings", "lost", "on_server", "refused", "token_of", "use", "wait_for"]

on_server = on_servers_of(MysqlServer)


def findings(t):
    done = t.stile("doctor", "--json")
    return {(found["severity"], found["id"]) for found in json.loads(done.stdout)["findings"]}
