# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""dynalite of npm, which speaks DynamoDB's protocol, on a free loopback port, in memory; it ends
with the test, even if that is killed.

    with DynamoServer() as server:
        server.create("locks")
        server.call("GetItem", {...}), server.url("locks")

It differs from DynamoDB: signatures are not checked, there is no throttling, no transactions and no
UpdateTimeToLive, and a failed condition never returns the item."""
import json
import os
import pathlib
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

from own_server import ATTEMPTS, OwnServer, die_with_parent, free_port

PATIENCE_S = 30
MAIN = pathlib.Path(os.environ.get("STILE_NPM", "")) / "node_modules" / "dynalite" / "cli.js"
ENV = {"AWS_ACCESS_KEY_ID": "AKIDTEST", "AWS_SECRET_ACCESS_KEY": "sesame", "AWS_REGION": "eu-test-1",
       "AWS_EC2_METADATA_DISABLED": "true"}
SIGNATURE = ("AWS4-HMAC-SHA256 Credential=a/20260101/eu-test-1/dynamodb/aws4_request, "
             "SignedHeaders=host, Signature=0")


def is_installed():
    return MAIN.is_file()


def call(port, operation, body):
    """The reply; an error is an OSError with its name."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/", json.dumps(body).encode(),
        {"X-Amz-Target": "DynamoDB_20120810." + operation, "X-Amz-Date": "20260101T000000Z",
         "Content-Type": "application/x-amz-json-1.0", "Authorization": SIGNATURE})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        reply = json.loads(error.read())
        raise OSError(reply["__type"].rpartition("#")[2], reply.get("message", "")) from None


class DynamoServer(OwnServer):
    program = "dynalite"

    def __init__(self):
        for _ in range(ATTEMPTS):
            self.dir = tempfile.mkdtemp(prefix="stile-test-")
            self.port = free_port()
            if self._run():
                return
            log = self.log
            self.stop()
        raise OSError("dynalite does not start: " + log)

    @property
    def log(self):
        with open(self.dir + "/log", encoding="utf-8") as log:
            return log.read()

    def _run(self):
        with open(self.dir + "/log", "a", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                ["node", MAIN, "--host", "127.0.0.1", "--port", str(self.port),
                 "--createTableMs", "0", "--deleteTableMs", "0"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=die_with_parent)
        return self._await()

    def _await(self):
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until and self.process.poll() is None:
            try:
                call(self.port, "ListTables", {})
                return True
            except OSError:
                time.sleep(0.02)
        return False

    def call(self, operation, body):
        return call(self.port, operation, body)

    def create(self, table, key="key", **more):
        self.call("CreateTable", {
            "TableName": table, "BillingMode": "PAY_PER_REQUEST",
            "AttributeDefinitions": [{"AttributeName": key, "AttributeType": "S"}],
            "KeySchema": [{"AttributeName": key, "KeyType": "HASH"}], **more})
        self._await_table(table)

    def _await_table(self, table):
        """It answers CreateTable before the table can be used."""
        until = time.monotonic() + PATIENCE_S
        while self.call("DescribeTable", {"TableName": table})["Table"]["TableStatus"] != "ACTIVE":
            assert time.monotonic() < until, table + " does not become active"
            time.sleep(0.01)

    def url(self, table, more="", port=None):
        return "dynamodb://%s?region=eu-test-1&endpoint=http://127.0.0.1:%d%s" % (
            table, port or self.port, more)
