# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the contract suite on redis-servers of its own:

    with_redis.py PROGRAM URL [FILTER]

In the URL, @PORT@ is the server's port, @PATH@ its Unix socket, @TLS@ its port for TLS and @CA@
the certificate that signed what it shows there; @NODES@ is a list of five servers, @TLSNODES@
of three that speak TLS and require the password sesame, @SENTINELS@ are three that watch a primary, and
@CLUSTER@ are the nodes of a Cluster."""
import contextlib
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "servers"))
from redis_groups import Cluster, Watched  # noqa: E402
from redis_server import RedisServer, free_port  # noqa: E402


def run_on_group(group, mark, program, url, *rest):
    with group:
        hosts = group.url.partition("://")[2].partition("/")[0]
        return subprocess.run([program, url.replace(mark, hosts), *rest]).returncode


def tls_args(port, keys):
    return ["--tls-port", str(port), "--tls-auth-clients", "no",
            "--tls-ca-cert-file", keys + "/ca.pem",
            "--tls-cert-file", keys + "/server.pem", "--tls-key-file", keys + "/server.key"]


def run(program, url, *rest):
    if "@SENTINELS@" in url:
        return run_on_group(Watched(), "@SENTINELS@", program, url, *rest)
    if "@CLUSTER@" in url:
        return run_on_group(Cluster(3), "@CLUSTER@", program, url, *rest)
    with tempfile.TemporaryDirectory(prefix="stile-test-") as keys:
        tls, args = 0, []
        if "@TLS@" in url or "@TLSNODES@" in url:
            subprocess.run([HERE.parent / "servers" / "certs", keys], check=True)
            tls = free_port()
            args = tls_args(tls, keys)
        with contextlib.ExitStack() as servers:
            server = servers.enter_context(RedisServer(*args))
            if "@NODES@" in url:
                nodes = [server] + [servers.enter_context(RedisServer(*args)) for _ in range(4)]
                url = url.replace("@NODES@", ",".join(f"127.0.0.1:{n.port}" for n in nodes))
            if "@TLSNODES@" in url:
                ports = [free_port() for _ in range(3)]
                for port in ports:
                    servers.enter_context(
                        RedisServer(*tls_args(port, keys), "--requirepass", "sesame"))
                url = url.replace("@TLSNODES@", ",".join(f"localhost:{p}" for p in ports))
            for mark, value in {"PORT": server.port, "PATH": server.path, "TLS": tls,
                                "CA": keys + "/ca.pem"}.items():
                url = url.replace(f"@{mark}@", str(value))
            return subprocess.run([program, url, *rest]).returncode


sys.exit(run(*sys.argv[1:]))
