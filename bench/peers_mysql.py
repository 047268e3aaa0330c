# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""MySQLdb at the same work: see peers_sql.py."""
import sys

import MySQLdb

import peers_sql

TRY = "SELECT GET_LOCK('peer', 0)"
WAIT = "SELECT GET_LOCK('peer', 1000)"
GIVE = "SELECT RELEASE_LOCK('peer')"


def cursor_at(port):
    return MySQLdb.connect(host="127.0.0.1", port=port, user="root", passwd="").cursor()


if __name__ == "__main__":
    peers_sql.run(sys.modules[__name__])
