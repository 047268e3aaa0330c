# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""The guard of nginx: requests through it, compared with the same proxy without it."""
import contextlib
import os
import pathlib
import re
import shutil
import sys

from figures import NotMeasured, compare, row, time_text
from places import pinned, staying_on

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "guard"))
from nginx_kit import Nginx, free_port  # noqa: E402

CLIENTS = 16
ANSWERS = 'server { listen 127.0.0.1:%d; location / { return 200 "written"; } }'
PLAIN = """server {
    listen 127.0.0.1:%d;
    location / {
        proxy_pass http://127.0.0.1:%d;
        proxy_ignore_client_abort on;
        proxy_next_upstream off;
        proxy_http_version 1.1;
        proxy_set_header Connection "";
        proxy_set_header Host $http_host;
        proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
        proxy_set_header X-Forwarded-Proto $scheme;
    }
}"""
HEADERS = ["-H", "Fencing-Resource: accounts", "-H", "Fencing-Token: 33", "-H", "Fencing-Issuer: redis:orders"]
GROWING = """
local token = %d
request = function()
    token = token + 1
    return wrk.format("POST", nil, {["Fencing-Resource"] = "ledger", ["Fencing-Token"] = token})
end
"""


@contextlib.contextmanager
def servers():
    """An upstream beside the clients, and on the first core an nginx in front of it with both ways:
    the guarded one and its port, the plain one's port."""
    answers, plain = free_port(), free_port()
    with contextlib.ExitStack() as stack:
        try:
            with staying_on(1):
                stack.enter_context(Nginx(answers, workers=1, http_block=ANSWERS % answers))
            with staying_on(0):
                nginx = stack.enter_context(Nginx(answers, workers=1, http_block=PLAIN % (plain, answers)))
        except (OSError, AssertionError, LookupError) as reason:
            raise NotMeasured(str(reason)) from reason
        yield nginx, plain


def cpu_ns(pid):
    with open("/proc/%d/stat" % pid, encoding="utf-8") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1e9 / os.sysconf("SC_CLK_TCK")


def load(bench, nginx, way, port, seconds, *args):
    """One line: requests a second, and the CPU that nginx has used for each."""
    (worker,) = nginx.worker_pids()
    before = cpu_ns(worker)
    said = bench.output(pinned(1, ["wrk", "-t1", "-d%ds" % seconds, *args, "http://127.0.0.1:%d/" % port])).stdout
    if "Non-2xx" in said or "Socket errors" in said:
        raise NotMeasured("%s: %s" % (way, said.strip().splitlines()[-3]))
    requests = int(re.search(r"(\d+) requests in", said).group(1))
    rate = float(re.search(r"Requests/sec: *([\d.]+)", said).group(1))
    return {"way": way, "per_s": rate, "each_ns": 1e9 / rate, "cpu_ns": (cpu_ns(worker) - before) / requests}


def guarded(bench):
    if not shutil.which("wrk"):
        raise NotMeasured("wrk is missing")
    seconds = 1 if bench.quick else 2
    with servers() as (nginx, plain):
        lines = []
        for _ in range(bench.rounds(20)):
            lines.append(load(bench, nginx, "plain", plain, seconds, "-c%d" % CLIENTS, *HEADERS))
            lines.append(load(bench, nginx, "guard", nginx.port, seconds, "-c%d" % CLIENTS, *HEADERS))
        raising = raises(bench, nginx, seconds)
    ours, beside, ratio = compare(lines, "way", "guard", "plain", "per_s")
    rows = [row("http: requests a second through nginx with the guard", "%.0f" % ours,
                "without %.0f" % beside, ratio, "at least 0.8 x", ratio >= 0.8)]
    ours, beside, ratio = compare(lines, "way", "guard", "plain", "cpu_ns")
    rows.append(row("  CPU of nginx for each", time_text(ours), "without " + time_text(beside), ratio))
    ours, beside, ratio = compare(raising, "way", "raise", "equal", "each_ns")
    rows.append(row("  a larger token each time, one client", time_text(ours),
                    "the same token " + time_text(beside), ratio))
    return rows, {"http": lines + raising}


def raises(bench, nginx, seconds):
    """Each of them is in the journal, on disk, before it is passed on."""
    script, lines = os.path.join(bench.directory, "growing.lua"), []
    for turn in range(bench.rounds(20) // 2 + 1):
        with open(script, "w", encoding="ascii") as file:
            file.write(GROWING % ((turn + 1) * 10**9))
        lines.append(load(bench, nginx, "equal", nginx.port, seconds, "-c1", *HEADERS))
        lines.append(load(bench, nginx, "raise", nginx.port, seconds, "-c1", "-s", script))
    return lines


ALL = {"http-guard": guarded}
