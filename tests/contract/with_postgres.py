"""Runs the contract suite on a PostgreSQL of its own:

    with_postgres.py STILE PROGRAM URL [FILTER]

In the URL, @PORT@ is the server's port and @DIR@ the directory of its Unix socket. With STILE "-" the
database is left without the schema that `stile setup` makes."""
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "servers"))
from postgres_server import PostgresServer  # noqa: E402


def run(stile, program, url, *rest):
    with PostgresServer("-c", "max_connections=120") as server:
        url = url.replace("@PORT@", str(server.port)).replace("@DIR@", server.dir)
        if stile != "-":
            subprocess.run([stile, "setup", url], check=True)
        return subprocess.run([program, url, *rest]).returncode


sys.exit(run(*sys.argv[1:]))
