# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""What tests on an etcd of their own share."""
import base64
import json
import os
import urllib.request

from cluster_kit import spin
from etcd_server import EtcdServer
from kit import PATIENCE


def use(t, url):
    t.env["STILE_ENGINE"] = url
    t.env["STILE_MODULES"] = os.environ["STILE_MODULES"]


def on_server(members=1, *args):
    """The test gets members that are started with these arguments."""
    def decorate(case):
        def with_server(t):
            with EtcdServer(members, *args) as server:
                use(t, server.url)
                case(t, server)
        with_server.__name__, with_server.__doc__ = case.__name__, case.__doc__
        return with_server
    return decorate


def enable_auth(server, *prefixes, password="pw"):
    """With the user root and a user worker whose role covers these prefixes and nothing else."""
    server.ctl("user", "add", "root:rootpw")
    server.ctl("user", "grant-role", "root", "root")
    server.ctl("role", "add", "locks")
    for prefix in prefixes:
        server.ctl("role", "grant-permission", "locks", "--prefix=true", "readwrite", prefix)
    server.ctl("user", "add", "worker:" + password)
    server.ctl("user", "grant-role", "worker", "locks")
    server.ctl("auth", "enable")


def keys_of(server, name="x"):
    return server.ctl("get", "--prefix", "--keys-only", "--sort-by", "CREATE", name + "/").split()


def revision_of(server):
    return json.loads(server.ctl("get", "x", "-w", "json"))["header"]["revision"]


def lease_of(key):
    return key.rsplit("/", 1)[1]


def put(server, key, value, lease):
    """As etcdctl does, but a hundred of them should not take a hundred processes."""
    request = {"key": text64(key), "value": text64(value), "lease": int(lease, 16)}
    urllib.request.urlopen(server.members[0].client_url + "/v3/kv/put",
                           json.dumps(request).encode(), timeout=PATIENCE).close()


def text64(text):
    return base64.b64encode(text.encode()).decode()


def created(server, key):
    return json.loads(server.ctl("get", key, "-w", "json"))["kvs"][0]["create_revision"]


def await_settled(server, key):
    """Its owner has said since when it is there, and has nothing more to say."""
    since = "/%x" % created(server, key)
    spin(lambda: since in server.ctl("get", "--from-key", "--keys-only", ""))
