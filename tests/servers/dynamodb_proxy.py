# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""A way to a DynamoDB on which requests are throttled, fail, get lost, or are answered with nonsense.

    with DynamoProxy(server.port) as proxy:
        rule = proxy.rule("UpdateItem", LOSE_REPLY, times=1)
        ... what is done through proxy.port ...
        rule.hit()

It verifies the signature of every request, which dynalite does not: a wrong one fails the test, unless `forgiving`. `proxy.operations` counts what came. An
action can also be an Answer of the test's own. With a certificate (a file NAME.pem with its NAME.key) it
speaks TLS. It answers UpdateTimeToLive and DescribeTimeToLive itself, as Amazon describes them: dynalite
does not know the former, and has nothing to say in the latter."""
import collections
import hashlib
import hmac
import http.client
import http.server
import json
import ssl
import threading
import time

PATIENCE = 60.0
LOSE_REQUEST = "the connection is cut before the request has gone on"
LOSE_REPLY = "the connection is cut when the request has been executed, before its answer"
CUT_REPLY = "executed, and half of its answer comes"
THROTTLE = "refused for its rate"
FAIL = "500, not executed"
FAIL_AFTER = "500, though it was executed"
GARBAGE = "200 with what is no JSON"
FOREIGN = "the answer of another request"
EXPIRED = "400 ExpiredTokenException"
LATE = "the connection is cut, and the request goes on at let_go()"
DENY = "400 AccessDeniedException"
SKEWED = "400 InvalidSignatureException, for the time"

# Of the proxy's own; body is bytes, headers a dict.
Answer = collections.namedtuple("Answer", "status body headers", defaults=({},))
# The action `then`, once the threading.Event `gate` is set.
Gated = collections.namedtuple("Gated", "gate then")


class Rule:
    def __init__(self, operation, action, times, containing):
        self.operation, self.action, self.left = operation, action, times
        self.containing = containing.encode()
        self.happened, self.bodies = threading.Event(), []

    def hit(self):
        assert self.happened.wait(PATIENCE), "no %s came" % self.operation


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def sign(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def signature(headers, body, names, scope, secret, path="/"):
    """As Amazon describes version 4, written from that description alone."""
    canonical = "\n".join(["POST", path, "", *("%s:%s" % (name, " ".join(headers[name].split()))
                                               for name in names), "", ";".join(names), sha256(body)])
    text = "\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], scope, sha256(canonical.encode())])
    key = ("AWS4" + secret).encode()
    for part in scope.split("/"):
        key = sign(key, part)
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def check_signature(headers, body, secrets):
    """The id of the key; an AssertionError says what is wrong."""
    headers = {name.lower(): value for name, value in headers.items()}
    scheme, _, rest = headers["authorization"].partition(" ")
    parts = dict(part.split("=", 1) for part in rest.split(", "))
    names = parts["SignedHeaders"].split(";")
    key_id, _, scope = parts["Credential"].partition("/")
    assert scheme == "AWS4-HMAC-SHA256" and key_id in secrets, rest
    secret, token = secrets[key_id]
    assert headers.get("x-amz-security-token") == token, "session token of " + key_id
    needed = {"host", "x-amz-date", "x-amz-target"} | ({"x-amz-security-token"} if token else set())
    assert needed <= set(names), names
    assert signature(headers, body, names, scope, secret) == parts["Signature"], "signature"
    return key_id


def forward(port, headers, body):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request("POST", "/", body, headers)
    reply = connection.getresponse()
    data = reply.read()
    connection.close()
    return reply.status, data


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def handle(self):
        try:
            super().handle()
        except OSError:
            pass

    def send_header(self, keyword, value):
        if keyword != "Date" or not self.server.proxy.dateless:
            super().send_header(keyword, value)

    def answer(self, status, body, headers=()):
        self.send_response(status)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def refuse(self, status, kind, message="rule"):
        self.answer(status, json.dumps({"__type": "com.amazonaws#" + kind, "message": message}).encode())

    def forward(self, body):
        return forward(self.server.proxy.target, dict(self.headers), body)

    def do_POST(self):  # noqa: N802
        proxy = self.server.proxy
        body = self.rfile.read(int(self.headers["Content-Length"]))
        operation = self.headers["X-Amz-Target"].rpartition(".")[2]
        action = proxy.next_action(operation, self.headers, body)
        if isinstance(action, Gated):
            assert action.gate.wait(PATIENCE)
            action = action.then
        if action in (LOSE_REQUEST, LATE):
            self.close_connection = True
        elif action == THROTTLE:
            self.refuse(400, "ProvisionedThroughputExceededException")
        elif action == FAIL:
            self.refuse(500, "InternalServerError")
        elif action == EXPIRED:
            self.refuse(400, "ExpiredTokenException")
        elif action == DENY:
            self.refuse(400, "AccessDeniedException", "User: arn:aws:iam::1:user/x is not authorized to "
                        "perform: dynamodb:%s on resource" % operation)
        elif action == SKEWED:
            self.refuse(400, "InvalidSignatureException", "Signature expired: 20260101T000000Z is now earlier than "
                        "20260101T002000Z (20260101T002500Z - 5 min.)")
        elif isinstance(action, Answer):
            self.answer(*action)
        elif operation.endswith("TimeToLive"):
            self.answer_ttl(operation, json.loads(body))
        elif action == GARBAGE:
            self.answer(200, b'{"Attributes":{"key":[\xff')
        else:
            self.finish_forwarded(operation, action, body)

    def answer_ttl(self, operation, body):
        enabled, table = self.server.proxy.ttl, body["TableName"]
        wanted = body.get("TimeToLiveSpecification")
        if wanted and table in enabled:
            self.refuse(400, "ValidationException", "TimeToLive is already enabled")
        elif wanted:
            assert wanted["Enabled"] is True, wanted
            enabled[table] = wanted["AttributeName"]
            self.answer(200, json.dumps({"TimeToLiveSpecification": wanted}).encode())
        else:
            known = {"TimeToLiveStatus": "ENABLED", "AttributeName": enabled[table]} if table in enabled else \
                {"TimeToLiveStatus": "DISABLED"}
            self.answer(200, json.dumps({"TimeToLiveDescription": known}).encode())

    def date_time_string(self, timestamp=None):
        return super().date_time_string(time.time() + self.server.proxy.ahead_s)

    def finish_forwarded(self, operation, action, body):
        status, data = self.forward(body)
        if operation == "DescribeTable" and status == 200 and self.server.proxy.replicas:
            reply = json.loads(data)
            reply["Table"]["Replicas"] = self.server.proxy.replicas
            data = json.dumps(reply).encode()
        if action == LOSE_REPLY:
            self.close_connection = True
        elif action == CUT_REPLY:
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[:len(data) // 2])
            self.close_connection = True
        elif action == FAIL_AFTER:
            self.refuse(503, "ServiceUnavailable")
        elif action == FOREIGN:
            self.answer(200, b'{"Attributes":{"key":{"S":"lock/other"},"token":{"N":"99000"},'
                        b'"for":{"S":"other"}}}')
        else:
            self.answer(status, data)


class DynamoProxy:
    def __init__(self, target, secrets=None, certificate=None):
        self.target, self.secrets = target, secrets or {"AKIDTEST": ("sesame", None)}
        self.rules, self.lock, self.wrong = [], threading.Lock(), []
        self.operations = collections.Counter()
        self.replicas, self.ahead_s, self.late, self.ttl = [], 0, [], {}
        self.dateless, self.forgiving, self.refused = False, False, 0
        self.expired, self.accepted = set(), collections.Counter()  # ids of keys
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, certificate.removesuffix(".pem") + ".key")
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True,
                                                     do_handshake_on_connect=False)
        self.server.daemon_threads = True
        self.server.proxy = self
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05})

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()
        assert not self.wrong, self.wrong[0]

    def rule(self, operation, action, times=1, containing=""):
        rule = Rule(operation, action, times, containing)
        with self.lock:
            self.rules.append(rule)
        return rule

    def let_go(self):
        """The answers to the late requests."""
        return [forward(self.target, headers, body) for headers, body in self.late]

    def next_action(self, operation, headers, body):
        with self.lock:
            self.operations[operation] += 1
            try:
                key_id = check_signature(headers, body, self.secrets)
                if key_id in self.expired:
                    self.refused += 1
                    return EXPIRED
                self.accepted[key_id] += 1
            except (AssertionError, KeyError, ValueError) as error:
                if self.forgiving:
                    return SKEWED
                self.wrong.append("%s: %s" % (operation, error))
            for rule in self.rules:
                if rule.operation == operation and rule.left and rule.containing in body:
                    rule.left -= 1
                    rule.bodies.append(body)
                    rule.happened.set()
                    if rule.action == LATE:
                        self.late.append((dict(headers), body))
                    return rule.action
        return None
