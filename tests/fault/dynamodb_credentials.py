# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Where the keys of DynamoDB come from: files with profiles, a container, an instance; each replaced while
it is in use."""
import contextlib
import http.server
import json
import os
import pathlib
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from dynamodb_kit import expect, item, run_if_installed, with_proxy  # noqa: E402,I001
from dynamodb_proxy import EXPIRED, FAIL, Gated  # noqa: E402
from kit import spin  # noqa: E402

class Metadata(http.server.BaseHTTPRequestHandler):
    """A container's and an instance's service in one."""
    def log_message(self, *_):
        pass

    def reply(self, text, status=200):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def make_trouble(self):
        answers = {"500": ("sorry", 500), "nonsense": ("\x1b[2J{", 200), "no keys": ('{"Code":"Failed"}', 200),
                   "newline": (json.dumps({"AccessKeyId": "A", "SecretAccessKey": "s3cret", "Token": "a\r\nX: y"}), 200)}
        self.server.troubled += 1
        self.reply(*answers[self.server.trouble])

    def do_PUT(self):  # noqa: N802
        assert self.headers["X-aws-ec2-metadata-token-ttl-seconds"]
        self.reply("session" if self.path == "/latest/api/token" else "", 200)

    def do_GET(self):  # noqa: N802
        root = "/latest/meta-data/iam/security-credentials/"
        if self.path.startswith(root) and self.headers["X-aws-ec2-metadata-token"] != "session":
            self.reply("", 401)
        elif self.path == root:
            self.reply("role")
        elif self.path == root + "role":
            self.keys("AKIDROLE")
        elif self.path == "/keys" and self.headers["Authorization"] == "let me":
            self.keys("AKIDBOX")
        else:
            self.reply("", 404)

    def keys(self, key_id):
        self.server.asked.set()
        assert self.server.gate.wait(30)
        if self.server.trouble not in (None, "no end"):
            self.make_trouble()
            return
        self.server.fetched += 1
        if self.server.trouble:
            self.reply(json.dumps({"AccessKeyId": key_id, "SecretAccessKey": "s3cret-" + key_id,
                                   "Token": "t0ken/" + key_id, "Expiration": "soon"}))
            return
        end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + self.server.life))
        self.reply(json.dumps({"AccessKeyId": key_id, "SecretAccessKey": "s3cret-" + key_id,
                               "Token": "t0ken/" + key_id, "Expiration": end}))


@contextlib.contextmanager
def metadata(life=3600):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metadata)
    server.fetched, server.life, server.daemon_threads = 0, life, True
    server.trouble, server.troubled = None, 0
    server.asked, server.gate = threading.Event(), threading.Event()
    server.gate.set()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server, "http://127.0.0.1:%d" % server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def secret_of(key_id):
    return {key_id: ("s3cret-" + key_id, "t0ken/" + key_id)}


def without_keys(t):
    for name in "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY":
        t.env.pop(name, None)


@with_proxy
def keys_from_files(t, _server, proxy):
    """~/.aws/credentials and ~/.aws/config, AWS_PROFILE, and no key ever printed"""
    without_keys(t)
    done = t.stile("run", "--try", "x", "--", "true")
    assert done.returncode == 69 and "no credentials" in done.stderr, done
    os.mkdir(t.path(".aws"))
    with open(t.path(".aws/credentials"), "w", encoding="ascii") as file:
        file.write("[default]\naws_access_key_id = AKIDTEST\naws_secret_access_key=sesame\n"
                   "[work]\naws_access_key_id = AKIDWORK\naws_secret_access_key = s3cret-AKIDWORK\n")
    with open(t.path(".aws/config"), "w", encoding="ascii") as file:
        file.write("[profile work]\nregion = eu-test-1\naws_session_token = t0ken/AKIDWORK\n")
    expect(t.stile("run", "x", "--", "true").returncode, 0)
    t.env["AWS_PROFILE"] = "work"
    proxy.secrets = secret_of("AKIDWORK")
    expect(t.stile("run", "x", "--", "true").returncode, 0)
    proxy.rule("GetItem", EXPIRED, 9)
    done = t.stile("show", "x")
    assert done.returncode == 69 and "s3cret" not in done.stderr and "t0ken" not in done.stderr, done


def write_keys(t, key_id, secret=None):
    os.makedirs(t.path(".aws"), exist_ok=True)
    with open(t.path(".aws/new"), "w", encoding="ascii") as file:
        file.write("[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n"
                   "aws_session_token = t0ken/%s\n" % (key_id, secret or "s3cret-" + key_id, key_id))
    os.rename(t.path(".aws/new"), t.path(".aws/credentials"))


@contextlib.contextmanager
def hoard(t, count):
    """One client that asks for so many locks at once."""
    with subprocess.Popen([os.environ["HOARD"], t.env["STILE_ENGINE"], str(count), "8", "60000"], env=t.env,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.stdin.close()
        expect(process.wait(), 0)


@with_proxy
def replaced_under_many(t, _server, proxy):
    """eight requests are refused together, and the file has new keys by then: each is sent again with them"""
    without_keys(t)
    write_keys(t, "AKIDOLD")
    proxy.secrets = secret_of("AKIDOLD") | secret_of("AKIDNEW")
    refused = threading.Event()
    rule = proxy.rule("UpdateItem", Gated(refused, EXPIRED), 8)
    with hoard(t, 8) as process:
        spin(lambda: rule.left == 0)
        write_keys(t, "AKIDNEW")
        refused.set()
        expect(process.stdout.readline().split(), ["held", "8"])


@with_proxy
def file_being_written(t, _server, proxy):
    """the old keys are refused while their file is empty, and then has another secret for the same key: a waiter goes on"""
    without_keys(t)
    write_keys(t, "AKIDONE")
    proxy.secrets = secret_of("AKIDONE")
    held = t.hold("x")
    waiting = t.start("acquire", "--wait", "60s", "x")
    spin(lambda: proxy.operations["GetItem"] > 2)
    with open(t.path(".aws/credentials"), "w", encoding="ascii") as file:
        file.write("[default]\n")
    proxy.expired.add("AKIDONE")
    refused = proxy.refused
    spin(lambda: proxy.refused > refused + 2)
    proxy.secrets, proxy.forgiving = {"AKIDONE": ("other", "t0ken/AKIDONE")}, True
    write_keys(t, "AKIDONE", "other")
    proxy.expired.clear()
    spin(lambda seen=proxy.accepted["AKIDONE"]: proxy.accepted["AKIDONE"] > seen)
    t.release(held)
    expect(waiting.wait(), 0)


@with_proxy
def service_hangs(t, server, proxy):
    """the keys of a role are refused, and the metadata service hangs for a while: other requests wait for it, and a
    waiter does not give up"""
    without_keys(t)
    proxy.secrets = secret_of("AKIDROLE")
    with metadata() as (service, url):
        t.env.update(AWS_EC2_METADATA_DISABLED="false", AWS_EC2_METADATA_SERVICE_ENDPOINT=url)
        first, second = threading.Event(), threading.Event()
        proxy.rule("UpdateItem", Gated(first, EXPIRED))
        rule = proxy.rule("UpdateItem", Gated(second, FAIL))
        with hoard(t, 2) as process:
            rule.hit()
            service.asked.clear()
            service.gate.clear()
            first.set()
            assert service.asked.wait(30)
            second.set()
            time.sleep(0.5)  # the pause after a 500 is over meanwhile; nothing is sent that would show it
            service.gate.set()
            expect(process.stdout.readline().split(), ["held", "2"])
            for i in range(2):
                assert "gone" not in item(server, "%d-xxxxxx" % i)  # what was withdrawn leaves a mark
        held = t.hold("x")
        waiting = t.start("acquire", "--wait", "60s", "x")
        spin(lambda: proxy.operations["GetItem"] > 2)
        service.trouble = "500"
        proxy.expired.add("AKIDROLE")
        wanted = service.troubled + 5
        spin(lambda: service.troubled > wanted)
        proxy.expired.clear()
        service.trouble = None
        t.release(held)
        expect(waiting.wait(), 0)


@with_proxy
def replaced_in_the_file(t, _server, proxy):
    """a tool writes new keys for an hour into the file: a holder goes on with them when the old are refused"""
    without_keys(t)
    write_keys(t, "AKIDOLD")
    proxy.secrets = secret_of("AKIDOLD") | secret_of("AKIDNEW")
    held = t.hold("x", "--ttl", "2s")
    write_keys(t, "AKIDNEW")
    proxy.expired.add("AKIDOLD")
    spin(lambda: proxy.accepted["AKIDNEW"])
    t.release(held)


@with_proxy
def metadata_in_trouble(t, _server, proxy):
    """no answer, 5xx, nonsense, keys without an end: a holder goes on with what it has; without any it says so"""
    without_keys(t)
    proxy.secrets = secret_of("AKIDROLE")
    with metadata(life=2) as (service, url):
        t.env.update(AWS_EC2_METADATA_DISABLED="false", AWS_EC2_METADATA_SERVICE_ENDPOINT=url)
        held = t.hold("x", "--ttl", "2s")
        for service.trouble in "500", "nonsense", "no keys", "newline", "no end":
            wanted = service.fetched + service.troubled + 1
            spin(lambda number=wanted: service.fetched + service.troubled >= number)
        service.trouble = None
        t.release(held)
        for service.trouble in "500", "nonsense", "no keys", "newline":
            done = t.stile("run", "--try", "x", "--", "true")
            assert done.returncode == 69 and "no credentials" in done.stderr and "metadata" in done.stderr, done
            assert "s3cret" not in done.stderr
        service.trouble = "no end"
        expect(t.stile("run", "x", "--", "true").returncode, 0)


@with_proxy
def keys_of_a_container(t, _server, proxy):
    """AWS_CONTAINER_CREDENTIALS_FULL_URI with its token; never over a network in clear text"""
    without_keys(t)
    proxy.secrets = secret_of("AKIDBOX")
    with metadata() as (_, url):
        t.env.update(AWS_CONTAINER_CREDENTIALS_FULL_URI=url + "/keys",
                     AWS_CONTAINER_AUTHORIZATION_TOKEN="let me")
        expect(t.stile("run", "x", "--", "true").returncode, 0)
        with open(t.path("token"), "w", encoding="ascii") as file:
            file.write("let me\n")
        t.env["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"] = t.path("token")
        t.env["AWS_CONTAINER_AUTHORIZATION_TOKEN"] = "wrong"
        expect(t.stile("run", "x", "--", "true").returncode, 0)
        del t.env["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"]
        done = t.stile("run", "--try", "x", "--", "true")
        assert done.returncode == 69 and "refuses to give any" in done.stderr, done
        t.env.update(AWS_CONTAINER_CREDENTIALS_FULL_URI=url.replace("//", "//127.0.0.1:80@") + "/keys",
                     AWS_CONTAINER_AUTHORIZATION_TOKEN="let me")
        done = t.stile("run", "--try", "x", "--", "true")
        assert done.returncode == 69 and "no credentials" in done.stderr, done
    for url in "http://192.0.2.1/keys", "http://127.0.0.1.evil.test/keys", "http://127.0.0.1@192.0.2.1/keys":
        t.env["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = url
        assert "no credentials" in t.stile("ls").stderr, url


@with_proxy
def keys_of_an_instance(t, _server, proxy):
    """the metadata service, version 2; fetched again before they end, and when they are refused"""
    without_keys(t)
    proxy.secrets = secret_of("AKIDROLE")
    with metadata(life=3) as (service, url):
        t.env.update(AWS_EC2_METADATA_DISABLED="false", AWS_EC2_METADATA_SERVICE_ENDPOINT=url)
        held = t.hold("x", "--ttl", "2s")
        until = time.monotonic() + 30
        while service.fetched < 3 and time.monotonic() < until:
            time.sleep(0.02)
        assert service.fetched >= 3
        service.life = 3600
        proxy.rule("UpdateItem", EXPIRED, 1).hit()
        t.release(held)


run_if_installed([keys_from_files, replaced_in_the_file, replaced_under_many, file_being_written, service_hangs, keys_of_a_container, keys_of_an_instance,
                  metadata_in_trouble])
