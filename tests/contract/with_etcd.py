# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the contract suite on an etcd of its own:

    with_etcd.py PROGRAM URL [FILTER]

In the URL, @HOSTS@ stands for the members, of which there are three if it ends in "?members=3"
(which is cut off), and @CA@ for the certificate that signed what they show to etcds://."""
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "servers"))
from etcd_server import EtcdServer  # noqa: E402


def run(program, url, *rest):
    members = 1
    if url.endswith("?members=3"):
        url, members = url[:-len("?members=3")], 3
    with tempfile.TemporaryDirectory(prefix="stile-test-") as keys:
        options, args = {}, []
        if url.startswith("etcds:"):
            subprocess.run([HERE.parent / "servers" / "certs", keys], check=True)
            args = ["--cert-file", keys + "/server.pem", "--key-file", keys + "/server.key"]
            options = {"scheme": "https", "ctl_args": ["--cacert", keys + "/ca.pem"]}
        with EtcdServer(members, *args, **options) as server:
            url = url.replace("@HOSTS@", server.hosts).replace("@CA@", keys + "/ca.pem")
            return subprocess.run([program, url, *rest]).returncode


sys.exit(run(*sys.argv[1:]))
