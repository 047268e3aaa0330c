# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the contract suite on a MariaDB of its own:

    with_mysql.py [--SERVER-OPTION...] STILE PROGRAM URL [FILTER]

In the URL, @PORT@ is the server's port and @SOCKET@ the path of its Unix socket. With STILE "-" the
database is left without the tables that `stile setup` makes."""
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "servers"))
from mysql_server import MysqlServer  # noqa: E402


def run(options, stile, program, url, *rest):
    with MysqlServer("--max-connections=200", *options) as server:
        if stile != "-":
            subprocess.run([stile, "setup", server.url], check=True)
        if "dialect=shedlock" in url:  # as its manual says, but with room for long names
            server.sql("create table shedlock (name varbinary(512) primary key, lock_until "
                       "timestamp(3) not null, locked_at timestamp(3) not null default "
                       "current_timestamp(3), locked_by varchar(255) not null)")
        url = url.replace("@PORT@", str(server.port)).replace("@SOCKET@", server.socket)
        return subprocess.run([program, url, *rest]).returncode


OPTIONS = [word for word in sys.argv[1:] if word.startswith("--")]
sys.exit(run(OPTIONS, *sys.argv[1 + len(OPTIONS):]))
