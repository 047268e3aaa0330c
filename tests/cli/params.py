# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Parameters of engine URLs: a value that is none of those a parameter knows is refused with a sentence
that names the parameter, before anything is connected to; in every engine."""
import os
import socket

from kit import expect, run_tests

BOOLEANS = ("", "2", "maybe", "TRUE", "nope", "f", "-1", "01")
NUMBERS = ("", "-1", "+5", "5x", "0x5", "%205", "1e1", "5.0", "99999999999999999999", "4294967298")
WORDS = ("", "nonsense")

# engine, URL up to its parameters, what its strict parameters are
PLACES = {
    "local": [("local:/nowhere?", {"fair": NUMBERS + ("101", "1ms"), "allow": WORDS})],
    "redis": [("rediss://127.0.0.1:%d?", {"insecure": BOOLEANS, "wait_replicas": NUMBERS + ("101",),
                                         "wait_timeout": NUMBERS + ("2501",), "allow": WORDS}),
              ("redis+unix:///nowhere?", {"db": NUMBERS + ("65536",)}),
              ("redis+sentinel://127.0.0.1:%d/m?", {"db": NUMBERS + ("65536",)}),
              ("rediss+cluster://127.0.0.1:%d?", {"insecure": BOOLEANS}),
              ("redis://127.0.0.1:%d?", {"db": ("3",), "insecure": ("yes", "1", "maybe")}),
              ("redlocks://127.0.0.1:%d,127.0.0.2:%d,127.0.0.3:%d?", {
                  "insecure": BOOLEANS, "fence": BOOLEANS, "allow": WORDS,
                  "node_timeout": NUMBERS + ("0", "60001")})],
    "etcd": [("etcds://127.0.0.1:%d?", {"insecure": BOOLEANS, "dialect": WORDS})],
    "dynamodb": [("dynamodb://table?region=eu-test-1&endpoint=http://127.0.0.1:%d&", {
        "poll": NUMBERS + ("19", "60001")})],
    "zookeeper": [("zk://127.0.0.1:%d?", {"sasl": BOOLEANS, "dialect": WORDS})],
    "mysql": [("mysql://root@127.0.0.1:%d?", {
        "insecure": BOOLEANS, "tls": BOOLEANS, "sessions": NUMBERS + ("0", "1", "1001"),
        "allow": WORDS, "mode": WORDS, "dialect": WORDS}),
              ("mysqls://root@127.0.0.1:%d?", {"tls": ("no", "0")})],
    "postgres": [("postgres://u@127.0.0.1:%d/d?", {
        "sessions": NUMBERS + ("0", "1", "1001"), "allow": WORDS, "mode": WORDS, "dialect": WORDS,
        "poll": NUMBERS + ("1001",), "connect_timeout": NUMBERS, "keepalives": NUMBERS + ("2", "yes"),
        "keepalives_idle": NUMBERS[:-1], "keepalives_interval": NUMBERS[:-1],
        "keepalives_count": NUMBERS[:-1], "tcp_user_timeout": NUMBERS[:-1],
        "sslsni": ("yes", "", "2"), "sslcompression": ("yes", "", "2")}),
                 ("postgres://u@127.0.0.1:%d/d?mode=table&", {"poll": ("20",)})],
}
# These are taken, so that what follows is that nobody listens.
FINE = {
    "redis": ["rediss://127.0.0.1:%d?insecure=no&wait_replicas=0&wait_timeout=2500&allow=eviction",
              "rediss://127.0.0.1:%d?insecure", "redis://127.0.0.1:%d?insecure=false",
              "redlocks://127.0.0.1:%d,127.0.0.2:%d,127.0.0.3:%d?fence=no&node_timeout=60000",
              "redis+sentinel://127.0.0.1:%d/m?db=3"],
    "etcd": ["etcds://127.0.0.1:%d?insecure=off"],
    "dynamodb": ["dynamodb://table?region=eu-test-1&endpoint=http://127.0.0.1:%d&poll=20"],
    "mysql": ["mysql://root@127.0.0.1:%d?tls=false&insecure=0&sessions=2"],
    "postgres": ["postgres://u@127.0.0.1:%d/d?sessions=2&keepalives=0&sslsni=1&connect_timeout=3",
                 "postgres://u@127.0.0.1:%d/d?poll=0", "postgres://u@127.0.0.1:%d/d?poll=1000"],
    "zookeeper": [],  # its client library takes seconds to find nobody
}


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def at(url, port):
    return url % ((port,) * url.count("%d"))


def is_built(name):
    return name in os.environ["ENGINES_BUILT"].split()


def refused(t, url, key):
    done = t.stile("ls", "-e", url)
    expect((done.returncode, done.stdout), (64, ""), url + ": " + done.stderr)
    assert key in done.stderr and done.stderr.count("\n") <= 2, (url, done.stderr)


def table(engine):
    def case(t):
        t.env["STILE_MODULES"] = os.environ["STILE_MODULES"]
        t.env.update(AWS_ACCESS_KEY_ID="id", AWS_SECRET_ACCESS_KEY="secret")  # else it looks for an instance's
        port = free_port()
        for url, params in PLACES[engine]:
            for key, values in params.items():
                for value in values:
                    refused(t, at(url, port) + key + "=" + value, key)
        for url in FINE.get(engine, ()):
            done = t.stile("ls", "-e", at(url, port))
            expect((done.returncode, done.stdout), (69, ""), url + ": " + done.stderr)
    case.__name__ = engine
    case.__doc__ = "%s: what a parameter does not know is refused, with its name" % engine
    return case


run_tests([table(engine) for engine in PLACES if is_built(engine)])
