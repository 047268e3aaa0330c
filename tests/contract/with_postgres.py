"""Runs the contract suite on a PostgreSQL of its own:

    with_postgres.py STILE PROGRAM URL [FILTER]

In the URL, @PORT@ is the server's port, @DIR@ the directory of its Unix socket and @POOLER@ the port
of a pgbouncer in front of it. With STILE "-" the database is left without the schema that `stile
setup` makes."""
import contextlib
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "servers"))
from postgres_server import PgBouncer, PostgresServer  # noqa: E402


def run(stile, program, url, *rest):
    with contextlib.ExitStack() as servers:
        server = servers.enter_context(PostgresServer("-c", "max_connections=120"))
        if stile != "-":
            subprocess.run([stile, "setup", server.url], check=True)
        if "@POOLER@" in url:
            pooler = servers.enter_context(PgBouncer(server))
            url = url.replace("@POOLER@", str(pooler.port))
        url = url.replace("@PORT@", str(server.port)).replace("@DIR@", server.dir)
        return subprocess.run([program, url, *rest]).returncode


sys.exit(run(*sys.argv[1:]))
