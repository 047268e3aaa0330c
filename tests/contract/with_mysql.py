"""Runs the contract suite on a MariaDB of its own:

    with_mysql.py STILE PROGRAM URL [FILTER]

In the URL, @PORT@ is the server's port and @SOCKET@ the path of its Unix socket. With STILE "-" the
database is left without the tables that `stile setup` makes."""
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "servers"))
from mysql_server import MysqlServer  # noqa: E402


def run(stile, program, url, *rest):
    with MysqlServer("--max-connections=200") as server:
        if stile != "-":
            subprocess.run([stile, "setup", server.url], check=True)
        url = url.replace("@PORT@", str(server.port)).replace("@SOCKET@", server.socket)
        return subprocess.run([program, url, *rest]).returncode


sys.exit(run(*sys.argv[1:]))
