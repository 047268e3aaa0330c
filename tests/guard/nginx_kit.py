# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""What the tests of the guard for nginx share: an nginx of their own with it, an upstream whose answers
wait until the test opens a gate, and requests that run beside the test."""
import collections
import http.client
import http.server
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.join(HERE, "..", "..")
sys.path[:0] = [os.path.join(SOURCE, "tests", folder) for folder in ("servers", "headers")]
sys.path.insert(0, os.path.join(SOURCE, "cli", "guard"))

from own_server import OwnServer, die_with_parent, free_port, preloading  # noqa: E402
from embed_nginx import join  # noqa: E402

PATIENCE_S = 60
MODULES = "/usr/lib/nginx/modules"
WORKER_USER = "www-data"
NAMES_WORKER = "proxy_set_header X-Worker $pid;"  # so that a test knows which one has passed it on
DEFAULTS = {"MEMORY": "1m", "WAIT_MS": "60000", "SETTLE_MS": "60000", "REQUIRE": "writes"}

MAIN = """
%(user)s
daemon off;
pid %(dir)s/pid;
error_log %(dir)s/error.log notice;
load_module %(modules)s/ndk_http_module.so;
load_module %(modules)s/ngx_http_lua_module.so;
worker_processes %(workers)d;
events { worker_connections 1024; }
http {
    access_log off;
    client_body_temp_path %(dir)s/body;
    proxy_temp_path %(dir)s/proxy;
    fastcgi_temp_path %(dir)s/fastcgi;
    uwsgi_temp_path %(dir)s/uwsgi;
    scgi_temp_path %(dir)s/scgi;
    %(http)s
    include %(dir)s/guard.conf;
}
"""

Answer = collections.namedtuple("Answer", "status headers text")


def printed(**values):
    """What the command prints, with these values."""
    text = join(os.path.join(SOURCE, "cli", "guard", "nginx.conf"),
                os.path.join(SOURCE, "cli", "guard", "nginx.lua"))
    for name, value in {**DEFAULTS, **values}.items():
        text = text.replace("@%s@" % name, value)
    return text


def spin(condition):
    """For what no event reports."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "did not happen in %d s" % PATIENCE_S
        time.sleep(0.005)


# ---- the upstream ----

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def handle_one_request(self):
        try:
            super().handle_one_request()
        except OSError:  # nginx has closed the connection
            self.close_connection = True

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        self.server.upstream.work(self, self.headers.get("Fencing-Token"), body)

    do_GET = do_HEAD = do_POST

    def reply(self, text, status=200):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


class Listener(http.server.ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True


class Upstream:
    """Writes what it is sent into a list. A request whose body names a gate waits for it before it
    writes; one whose body names an answer gets these bytes, once. events lists (what, token) in order."""

    def __init__(self):
        self.server = Listener(("127.0.0.1", 0), Handler)
        self.server.upstream = self
        self.port = self.server.server_address[1]
        self.events, self.arrived, self.gates, self.answers = [], queue.Queue(), {}, {}
        self.lock = threading.Lock()
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def gate(self, name):
        self.gates[name] = threading.Event()
        return self.gates[name]

    def note(self, what, token):
        with self.lock:
            self.events.append((what, token))

    def work(self, handler, token, body):
        if token is None:
            handler.reply("unguarded")
            return
        self.note("begin", token)
        self.arrived.put((token, handler.headers.get("X-Worker")))
        if body in self.gates:
            assert self.gates[body].wait(PATIENCE_S)
        self.note("end", token)
        if body in self.answers:
            handler.wfile.write(self.answers.pop(body))
            handler.close_connection = True
        else:
            handler.reply("written")

    def await_arrival(self, token):
        """The worker that has passed it on."""
        came, worker = self.arrived.get(timeout=PATIENCE_S)
        assert came == str(token), "%s came instead of %s" % (came, token)
        return int(worker)

    def close(self):
        for gate in self.gates.values():
            gate.set()
        self.server.shutdown()
        self.server.server_close()


def stop_at_rest(worker):
    """Stops a worker while it waits for events. Elsewhere it may have the lock of the dictionary, and the
    other workers would wait for that."""
    def stopped():
        os.kill(worker, signal.SIGSTOP)
        spin(lambda: state_of(worker) == "T")
        with open("/proc/%d/syscall" % worker, encoding="ascii") as file:
            if file.read().split()[0] != "-1":
                return True
        os.kill(worker, signal.SIGCONT)
        return False
    spin(stopped)


def state_of(pid):
    with open("/proc/%d/stat" % pid, encoding="utf-8") as file:
        return file.read().rpartition(")")[2].split()[0]


# ---- nginx ----

class Nginx(OwnServer):
    program = "nginx"

    def __init__(self, upstream_port, workers=2, location="", http_block="", start=True, **values):
        """location, http_block: more for these blocks."""
        self.dir = tempfile.mkdtemp(prefix="stile-nginx-")
        self.state = os.path.join(self.dir, "state")
        self.port = free_port()
        self.workers, self.location, self.http = workers, location, http_block
        self.values = {"LISTEN": "127.0.0.1:%d" % self.port, "STATE": self.state,
                       "UPSTREAM": "http://127.0.0.1:%d" % upstream_port, **values}
        os.mkdir(self.state, 0o700)
        if os.geteuid() == 0:
            os.chmod(self.dir, 0o755)
            shutil.chown(self.state, WORKER_USER)
        self.configure()
        if start:
            self.restart()

    def configure(self, **values):
        self.values.update(values)
        text = printed(**self.values).replace("proxy_http_version", self.location + " proxy_http_version")
        main = MAIN % {"dir": self.dir, "modules": MODULES, "workers": self.workers,
                       "http": self.http,
                       "user": "user %s;" % WORKER_USER if os.geteuid() == 0 else ""}
        for name, content in ("guard.conf", text), ("nginx.conf", main):
            with open(os.path.join(self.dir, name), "w", encoding="ascii") as file:
                file.write(content)

    def spawn(self):
        return subprocess.Popen(
            ["/usr/sbin/nginx", "-p", self.dir, "-c", os.path.join(self.dir, "nginx.conf")],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env=preloading(), preexec_fn=die_with_parent)

    def restart(self):
        """Ends when its workers are ready."""
        before = self.joined()
        self.process = self.spawn()
        spin(lambda: self.process.poll() is not None or len(self.joined() - before) == self.workers)
        assert self.process.poll() is None, self.log

    @property
    def log(self):
        try:
            with open(os.path.join(self.dir, "error.log"), encoding="utf-8", errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def worker_pids(self):
        with open("/proc/%d/task/%d/children" % (self.process.pid, self.process.pid),
                  encoding="ascii") as file:
            pids = [int(pid) for pid in file.read().split()]
        return [pid for pid in pids if self._is_worker(pid)]

    @staticmethod
    def _is_worker(pid):
        try:
            with open("/proc/%d/cmdline" % pid, "rb") as file:
                return file.read().startswith(b"nginx: worker process")
        except OSError:
            return False

    def joined(self):
        """The lines of the workers whose guard is ready, or was when they died."""
        try:
            with open(os.path.join(self.state, "workers"), encoding="ascii") as file:
                return set(filter(str.strip, file.readlines()))
        except FileNotFoundError:
            return set()

    def reload(self, ready=True):
        """Ends when the new workers are ready; the old ones may have work left."""
        workers, lines = set(self.worker_pids()), self.joined()
        self.process.send_signal(signal.SIGHUP)
        spin(lambda: len(set(self.worker_pids()) - workers) == self.workers)
        spin(lambda: not ready or len(self.joined() - lines) == self.workers)

    def await_successor(self, worker):
        """Ends when nginx has replaced this worker, which was killed."""
        spin(lambda: worker not in self.worker_pids() and len(self.worker_pids()) == self.workers)
        spin(lambda: len(self.joined()) == self.workers + 1)

    def kill(self, number=signal.SIGKILL):
        """All of its processes: the workers would survive their master."""
        if self.process:
            pids = self.worker_pids()
            super().kill(number)
            for pid in pids:
                if number == signal.SIGKILL:
                    self._kill_worker(pid)
            spin(lambda: not any(map(self._is_worker, pids)))

    @staticmethod
    def _kill_worker(pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def journal(self):
        with open(os.path.join(self.state, "journal"), encoding="utf-8") as file:
            return [line.split("\t")[:-1] for line in file.read().split("\n") if line]

    # -- requests --

    def request(self, resource=None, token=None, issuer=None, body="", method="POST", headers=()):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        connection.putrequest(method, "/")
        given = [("Fencing-Resource", resource), ("Fencing-Token", token), ("Fencing-Issuer", issuer)]
        for name, value in [*given, *headers, ("Content-Length", len(body))]:
            if value is not None:
                connection.putheader(name, value if isinstance(value, bytes) else str(value))
        connection.endheaders(body.encode())
        response = connection.getresponse()
        answer = Answer(response.status, response.headers, response.read().decode())
        connection.close()
        return answer

    def status(self, *args, **how):
        return self.request(*args, **how).status

    def begin(self, *args, **how):
        return Running(self, args, how)

    def until_raised(self, resource, token):
        """Ends when this token has been remembered, after others."""
        spin(lambda: self.request(resource, 1).headers["Fencing-Highest"] == str(token))

    def ping(self):
        """What was passed on before this has reached the upstream afterwards."""
        for _ in range(3):
            assert self.status(method="GET") == 200


class Running(threading.Thread):
    """A request beside the test."""

    def __init__(self, nginx, args, how):
        super().__init__(daemon=True)
        self.nginx, self.args, self.how = nginx, args, how
        self.answer = self.problem = None
        self.start()

    def run(self):
        try:
            self.answer = self.nginx.request(*self.args, **self.how)
        except (OSError, http.client.HTTPException) as error:
            self.problem = error

    def end(self):
        self.join(PATIENCE_S)
        assert self.answer, "no answer: %s" % self.problem
        return self.answer


# ---- what most cases do ----

def expect(seen, wanted):
    assert seen == wanted, "%r instead of %r" % (seen, wanted)


def guarded(**how):
    """Runs a case with an upstream and an nginx in front of it."""
    def decorate(case):
        def run():
            upstream = Upstream()
            more = NAMES_WORKER + how.pop("location", "")
            try:
                with Nginx(upstream.port, location=more, **how) as nginx:
                    try:
                        case(nginx, upstream)
                    except AssertionError:
                        print("# " + nginx.log.replace("\n", "\n# "))
                        raise
            finally:
                upstream.close()
        run.__name__ = case.__name__
        return run
    return decorate


def in_flight(nginx, upstream, resource, token, gate="gate", **how):
    """A request that the upstream works on until its gate opens, the gate, and the worker."""
    opened = upstream.gates.get(gate) or upstream.gate(gate)
    running = nginx.begin(resource, token, body=gate, **how)
    return running, opened, upstream.await_arrival(token)


def finish_in_order(upstream, gate, first, second):
    """Both requests succeed, and the second reached the upstream after the end of the first."""
    gate.set()
    for running in first, second:
        expect(running.end().status, 200)
    older, newer = first.args[1], second.args[1]
    expect([event for event in upstream.events if event[1] in (str(older), str(newer))],
           [("begin", str(older)), ("end", str(older)), ("begin", str(newer)), ("end", str(newer))])
