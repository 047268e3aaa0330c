# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the contract suite on a PostgreSQL of its own:

    with_postgres.py STILE PROGRAM URL [FILTER]

In the URL, @PORT@ is the server's port, @DIR@ the directory of its Unix socket, @CA@ the certificate
that signed what it shows over TLS, and @POOLER@ the port of a pgbouncer in front of it. With STILE "-"
the database is left without the schema that `stile setup` makes."""
import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

SERVERS = pathlib.Path(__file__).resolve().parent.parent / "servers"
sys.path.insert(0, str(SERVERS))
from postgres_server import PgBouncer, PostgresServer  # noqa: E402


def tls(keys):
    """Options for a server with these keys, which must be its own user's."""
    subprocess.run([SERVERS / "certs", keys], check=True)
    os.chmod(keys, 0o755)
    for name in os.listdir(keys):
        os.chmod(os.path.join(keys, name), 0o600 if name.endswith(".key") else 0o644)
        if os.getuid() == 0 and name.endswith(".key"):
            shutil.chown(os.path.join(keys, name), "postgres", "postgres")
    return ["-c", "ssl=on", "-c", "ssl_cert_file=%s/server.pem" % keys, "-c",
            "ssl_key_file=%s/server.key" % keys]


def run(stile, program, url, *rest):
    with contextlib.ExitStack() as servers:
        args = ["-c", "max_connections=120"]
        if "@CA@" in url:
            keys = servers.enter_context(tempfile.TemporaryDirectory(prefix="stile-test-"))
            args += tls(keys)
            url = url.replace("@CA@", keys + "/ca.pem")
        server = servers.enter_context(PostgresServer(*args))
        if stile != "-":
            subprocess.run([stile, "setup", server.url], check=True)
        if "dialect=shedlock" in url:  # as its manual says, but with room for long names
            server.sql("create table shedlock (name text primary key, lock_until timestamp not null, "
                       "locked_at timestamp not null, locked_by varchar(255) not null)")
        if "@POOLER@" in url:
            pooler = servers.enter_context(PgBouncer(server))
            url = url.replace("@POOLER@", str(pooler.port))
        url = url.replace("@PORT@", str(server.port)).replace("@DIR@", server.dir)
        return subprocess.run([program, url, *rest]).returncode


sys.exit(run(*sys.argv[1:]))
