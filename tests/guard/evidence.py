# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Every engine and every guard: a holder is stopped, its lock goes to another one, which writes; then
the first goes on and writes late. Without a guard its write is accepted, and the other's update is lost;
with the guard it is refused.

The holder is stopped past its TTL. A lock of local: has none; it is taken from the stopped holder by `stile
break`. Each late holder writes several times. The table that the test prints is
that of docs/fences.md.
"""
import contextlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.join(HERE, "..", "..")
sys.path[:0] = [os.path.join(SOURCE, "tests", folder) for folder in ("servers", "cli")]
sys.path.insert(0, HERE)

import dynamodb_server  # noqa: E402
from etcd_server import EtcdServer  # noqa: E402
from kit import Lines, STILE, expect, kill_quietly  # noqa: E402
from mysql_server import MysqlServer, tool as mysql_tool  # noqa: E402
from nginx_kit import Nginx, Upstream  # noqa: E402
from postgres_server import PostgresServer, tool as postgres_tool  # noqa: E402
from redis_server import RedisServer  # noqa: E402
from zookeeper_server import ZookeeperServer  # noqa: E402

LATE = os.environ["STILE_LATE"]
LATE_WRITES = 3
TTL_MS = "2000"
PATIENCE_S = 60


def stile(*args, **how):
    return subprocess.run([STILE, *args], check=True, timeout=PATIENCE_S, stdout=subprocess.PIPE,
                          stdin=how.pop("stdin", subprocess.DEVNULL), text=True, **how).stdout


# ---- where they write: a command with and one without the guard, and what is there ----

class Postgres:
    name = "PostgreSQL"

    def __init__(self, server):
        self.server = server
        server.sql("create table place (id text primary key, value text)")
        self.psql = "%s -X -q -v ON_ERROR_STOP=1 %s -c" % (postgres_tool("psql"), shlex.quote(server.url))

    def prepare(self, resource):
        for row in resource, resource + "-bare":
            self.server.sql("insert into place values ('%s', '')" % row)

    def guarded(self, resource, value):
        return self.psql + (''' "begin; select stile.guard('%s', $STILE_TOKEN, '$STILE_ISSUER'); update place '''
                            '''set value = '%s' where id = '%s'; commit" >/dev/null''' % (resource, value, resource))

    def bare(self, resource, value):
        return self.psql + ''' "update place set value = '%s' where id = '%s-bare'"''' % (value, resource)

    def value(self, resource):
        return self.server.sql("select value from place where id = '%s'" % resource)


class Mysql(Postgres):
    name = "MySQL"

    def __init__(self, server):
        self.server = server
        server.sql("create table place (id varchar(100) primary key, value varchar(100))")
        self.client = "%s --no-defaults -uroot -h127.0.0.1 -P%d tests -e" % (mysql_tool("mariadb"), server.port)

    def guarded(self, resource, value):
        return self.client + (''' "start transaction; call stile_guard('%s', $STILE_TOKEN, '$STILE_ISSUER'); '''
                              '''update place set value = '%s' where id = '%s'; commit"''' % (resource, value, resource))

    def bare(self, resource, value):
        return self.client + ''' "update place set value = '%s' where id = '%s-bare'"''' % (value, resource)


class Sqlite:
    name = "SQLite"

    def __init__(self, directory):
        self.path = os.path.join(directory, "place.db")
        self.run(stile("guard", "sql", "--dialect", "sqlite"))
        self.run("create table place (id text primary key, value text)")

    def run(self, text):
        return subprocess.run(["sqlite3", "-bail", self.path], input=text, text=True, check=True,
                              stdout=subprocess.PIPE).stdout.strip()

    def prepare(self, resource):
        self.run("insert into place values ('%s', ''), ('%s-bare', '')" % (resource, resource))

    def guarded(self, resource, value):
        return ('''sqlite3 -bail %s "begin immediate; insert into stile_guard (resource, token, issuer) values '''
                '''('%s', $STILE_TOKEN, '$STILE_ISSUER'); update place set value = '%s' where id = '%s'; commit"'''
                % (self.path, resource, value, resource))

    def bare(self, resource, value):
        return '''sqlite3 %s "update place set value = '%s' where id = '%s-bare'"''' % (self.path, value, resource)

    def value(self, resource):
        return self.run("select value from place where id = '%s'" % resource)


class Redis:
    name = "Redis"

    def __init__(self, server):
        self.server = server
        self.cli = "redis-cli -e -p %d" % server.port

    def prepare(self, resource):
        pass

    def guarded(self, resource, value):
        return "%s fcall stile_guard_set 2 'stile:guard:{%s}' %s $STILE_TOKEN $STILE_ISSUER %s >/dev/null" % (
            self.cli, resource, resource, value)

    def bare(self, resource, value):
        return "%s set %s-bare %s >/dev/null" % (self.cli, resource, value)

    def value(self, resource):
        return self.server.cli("get", resource)


class File:
    name = "file"

    def __init__(self, directory):
        self.dir = directory

    def prepare(self, resource):
        pass

    def guarded(self, resource, value):
        return "printf %s | %s file put %s/%s" % (value, STILE, self.dir, resource)

    def bare(self, resource, value):
        return "printf %s >%s/%s-bare" % (value, self.dir, resource)

    def value(self, resource):
        with open(os.path.join(self.dir, resource), encoding="utf-8") as file:
            return file.read()


class Store(Upstream):
    """Keeps the last body for each path."""

    def __init__(self):
        self.stored = {}
        super().__init__()

    def work(self, handler, token, body):
        self.stored[handler.path] = body
        handler.reply("written")


class Http:
    name = "HTTP"

    def __init__(self, nginx, upstream):
        self.nginx, self.upstream = nginx, upstream

    def prepare(self, resource):
        pass

    def _curl(self, port, resource, value, headers=""):
        return "curl -sS -f -o /dev/null -X POST --data %s %s http://127.0.0.1:%d/%s" % (value, headers, port,
                                                                                       resource)

    def guarded(self, resource, value):
        headers = '-H "Fencing-Resource: %s" -H "Fencing-Token: $STILE_TOKEN" -H "Fencing-Issuer: $STILE_ISSUER"'
        return self._curl(self.nginx.port, resource, value, headers % resource)

    def bare(self, resource, value):
        return self._curl(self.upstream.port, resource + "-bare", value)

    def value(self, resource):
        return self.upstream.stored["/" + resource]


class Dynamo:
    """An item of the user's own, as examples/fenced-dynamodb.sh writes it."""
    name = "DynamoDB"

    def __init__(self, server):
        self.server = server
        server.create("place")

    def prepare(self, resource):
        pass

    def _update(self, key, update, values, more=""):
        body = '''{"TableName":"place","Key":{"key":{"S":"%s"}},"UpdateExpression":"%s",%s''' \
               '''"ExpressionAttributeNames":{"#v":"value"},"ExpressionAttributeValues":{%s}}''' % (
                   key, update, more, values)
        return ("curl -sS -f -o /dev/null --user AKIDTEST:sesame --aws-sigv4 aws:amz:eu-test-1:dynamodb "
                "-H 'Content-Type: application/x-amz-json-1.0' -H 'X-Amz-Target: DynamoDB_20120810.UpdateItem' "
                "--data '%s' http://127.0.0.1:%d/" % (body, self.server.port))

    def guarded(self, resource, value):
        return self._update(resource, "SET #v = :v, fence = :t",
                            '''":v":{"S":"%s"},":t":{"N":"'"$STILE_TOKEN"'"}''' % value,
                            '''"ConditionExpression":"attribute_not_exists(fence) OR fence <= :t",''')

    def bare(self, resource, value):
        return self._update(resource + "-bare", "SET #v = :v", '''":v":{"S":"%s"}''' % value)

    def value(self, resource):
        key = {"TableName": "place", "Key": {"key": {"S": resource}}}
        return self.server.call("GetItem", key)["Item"]["value"]["S"]


class Cell:
    """On the engine of the lock; redlock has none, and uses etcd's."""
    name = "cell"

    def __init__(self, engines):
        self.engines, self.url = engines, None

    def prepare(self, resource):
        self.url = self.engines[resource if resource != "redlock" else "etcd"]

    def _put(self, resource, value, options=""):
        return "printf %s | %s cell put -e %s %s %s >/dev/null" % (value, STILE, shlex.quote(self.url), options, resource)

    def guarded(self, resource, value):
        return self._put(resource, value, '--token $STILE_TOKEN --issuer "$STILE_ISSUER"')

    def bare(self, resource, value):
        return self._put(resource + "-bare", value)

    def value(self, resource):
        return stile("cell", "get", "-e", self.url, resource)


# ---- the holders ----

class Holder:
    def __init__(self, url, name):
        self.process = subprocess.Popen([LATE, url, name, TTL_MS], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.out = Lines(self.process.stdout.fileno())

    def granted(self):
        """Its token."""
        token, issuer = self.out.next().split(" ", 1)
        assert ":" in issuer, (token, issuer)
        return int(token)

    def ask(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def answer(self):
        return int(self.out.next())

    def signal(self, number):
        self.process.send_signal(number)
        if number == signal.SIGSTOP:
            os.waitpid(self.process.pid, os.WUNTRACED)

    def end(self):
        kill_quietly(self.process.pid)
        self.process.wait()
        for pipe in self.process.stdin, self.process.stdout, self.process.stderr:
            pipe.close()


def write(holder, command):
    holder.ask(command)
    expect(holder.answer(), 0, command)


def play(engine, url, places):
    """For each place: the late writes that were accepted without its guard, and with it."""
    with contextlib.ExitStack() as holders:
        paused = Holder(url, "evidence")
        holders.callback(paused.end)
        old = paused.granted()
        for place in places:
            place.prepare(engine)
            write(paused, place.guarded(engine, "first"))
            write(paused, place.bare(engine, "first"))
        paused.signal(signal.SIGSTOP)
        for place in places:  # what it is about to do
            for _ in range(LATE_WRITES):
                paused.ask(place.bare(engine, "late"))
                paused.ask(place.guarded(engine, "late"))
        if engine == "local":
            stile("break", "-y", "-e", url, "evidence")
        other = Holder(url, "evidence")
        holders.callback(other.end)
        assert other.granted() > old
        for place in places:
            write(other, place.guarded(engine, "new"))
            write(other, place.bare(engine, "new"))
        paused.signal(signal.SIGCONT)
        return {place.name: count(paused, place, engine) for place in places}


def count(paused, place, engine):
    answers = [paused.answer() for _ in range(2 * LATE_WRITES)]
    bare, guarded = answers[::2].count(0), answers[1::2].count(0)
    print("# %s, %s: of %d late writes %d were accepted without the guard, %d with it"
          % (engine, place.name, LATE_WRITES, bare, guarded))
    expect(guarded, 0, place.name)
    expect(place.value(engine), "new", place.name)
    assert bare == LATE_WRITES and place.value(engine + "-bare") == "late", "without a guard no update is lost"
    return bare, guarded


# ---- all of it ----

def open_engines(stack, directory):
    redis = stack.enter_context(RedisServer())
    nodes = [stack.enter_context(RedisServer()) for _ in range(3)]
    postgres, mysql = stack.enter_context(PostgresServer()), stack.enter_context(MysqlServer())
    engines = {
        "local": "local:" + os.path.join(directory, "locks"),
        "redis": "redis://127.0.0.1:%d" % redis.port,
        "redlock": "redlock://" + ",".join("127.0.0.1:%d" % node.port for node in nodes),
        "etcd": stack.enter_context(EtcdServer()).url,
        "zk": stack.enter_context(ZookeeperServer()).url,
        "postgres": postgres.url,
        "mysql": mysql.url,
    }
    dynamo = None
    if dynamodb_server.is_installed():
        os.environ.update(dynamodb_server.ENV)
        dynamo = stack.enter_context(dynamodb_server.DynamoServer())
        engines["dynamodb"] = dynamo.url("locks", "&poll=100")
    for name in {"postgres", "mysql", "dynamodb"} & set(engines):
        stile("setup", engines[name])
    stile("guard", "install", engines["redis"])
    return engines, redis, postgres, mysql, dynamo


def open_places(stack, directory, engines, redis, postgres, mysql, dynamo):
    upstream = Store()
    stack.callback(upstream.close)
    nginx = stack.enter_context(Nginx(upstream.port))
    return [Postgres(postgres), Mysql(mysql), Sqlite(directory), Redis(redis), File(directory),
            Http(nginx, upstream), *([Dynamo(dynamo)] if dynamo else []), Cell(engines)]


def print_table(results, places):
    print("# | lock, of %d late writes accepted | %s |" % (LATE_WRITES, " | ".join(place.name for place in places)))
    for engine, seen in results.items():
        cells = ("%d without, %d with" % seen[place.name] for place in places)
        print("# | %s | %s |" % (engine, " | ".join(cells)))


def main():
    results, failed = {}, 0
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="stile-evidence-"))
        engines, *servers = open_engines(stack, directory)
        places = open_places(stack, directory, engines, *servers)
        print("1..%d" % len(engines), flush=True)
        for number, (engine, url) in enumerate(engines.items(), 1):
            try:
                results[engine] = play(engine, url, places)
                word = "ok"
            except Exception as error:  # the other engines are still tried
                print("# %s" % error)
                word, failed = "not ok", failed + 1
            print("%s %d - %s: late writes are refused by every guard" % (word, number, engine), flush=True)
        print_table(results, places)
    sys.exit(1 if failed else 0)


main()
