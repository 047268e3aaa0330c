#!/usr/bin/env python3
# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""The picture in README.md: twenty hosts want one lock, and its holder is killed.

    docs/picture.py run STILE   runs it on a Redis of its own and writes docs/picture.json
    docs/picture.py draw        draws docs/picture.svg from that, the same bytes each time

Each "host" is a `stile run` with a process tree of its own. The first holder is killed with -9 in the
middle of its work; those after it end by themselves.
"""
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
DATA, SVG = HERE / "picture.json", HERE / "picture.svg"
HOSTS = 20
KILLED_AFTER = 1.0
WORK = 0.8
END = 4.0

# The command: notes when it starts and when it ends. A shell, because it starts quickly.
COMMAND = """
note() { echo "$(date +%s%N) $1 $host $STILE_TOKEN" >>"$log"; }
log=$1 host=$2
note start
sleep "$3"
note end
"""


# ---- running ----

def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for(what):
    for _ in range(1000):
        if what():
            return
        time.sleep(0.01)
    sys.exit("picture: this took too long")


def answers(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def start_host(stile, url, log, host):
    first = 60 if host == 0 else WORK
    return subprocess.Popen([stile, "run", "-q", "-e", url, "report", "--", "sh", "-c", COMMAND, "sh", log,
                             str(host), str(first)], start_new_session=True)


def events(log):
    if not os.path.exists(log):
        return []
    with open(log, encoding="ascii") as file:
        return [(int(at), what, int(host), int(token))
                for at, what, host, token in map(str.split, file)]


def watch(stile, url, directory):
    """What happened, in milliseconds since the first command started."""
    log = os.path.join(directory, "log")
    hosts = [start_host(stile, url, log, 0)]
    wait_for(lambda: events(log))
    try:
        hosts += [start_host(stile, url, log, host) for host in range(1, HOSTS)]
        zero = events(log)[0][0]
        time.sleep(KILLED_AFTER - (time.time_ns() - zero) / 1e9)
        killed = time.time_ns()
        hosts[0].kill()
        time.sleep(END - (time.time_ns() - zero) / 1e9)
    finally:
        for host in hosts:
            host.send_signal(signal.SIGTERM)
        for host in hosts:
            host.wait()
    return {"killed": round((killed - zero) / 1e6, 1),
            "events": [[round((at - zero) / 1e6, 1), what, host, token]
                       for at, what, host, token in events(log) if at - zero < END * 1e9]}


def run(stile):
    directory = tempfile.mkdtemp(prefix="stile-picture-")
    port = free_port()
    server = subprocess.Popen(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "",
                               "--dir", directory, "--appendonly", "yes"], stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: answers(port))
        found = watch(os.path.abspath(stile), "redis://127.0.0.1:%d" % port, directory)
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(directory, ignore_errors=True)
    DATA.write_text(json.dumps(found, indent=1) + "\n", encoding="ascii")
    print("picture: written: %s" % DATA.name)


# ---- drawing ----

LEFT, TOP, WIDTH, ROW, RIGHT = 72, 46, 760, 15, 16
STYLE = """
  text { font: 12px ui-sans-serif, system-ui, sans-serif; fill: #24292f }
  .small { font-size: 10px; fill: #57606a }
  .wait { stroke: #afb8c1; stroke-width: 1.5; stroke-dasharray: 2 3 }
  .run { fill: #2da44e } .dead { fill: #cf222e } .kill { stroke: #cf222e; stroke-width: 2 }
  .axis { stroke: #d0d7de }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .small { fill: #8d96a0 } .wait { stroke: #656c76 } .axis { stroke: #30363d }
    .run { fill: #3fb950 } .dead { fill: #f85149 } .kill { stroke: #f85149 }
  }
"""


def spans(data):
    """[host, from, until, token, killed] of each command, in the order in which they ran."""
    ran = []
    for at, what, host, token in data["events"]:
        if what == "start":
            ran.append([host, at, None, token, False])
        else:
            next(span for span in ran if span[0] == host)[2] = at
    for span in ran:
        if span[2] is None:
            span[4] = span[0] == 0
            span[2] = data["killed"] if span[4] else END * 1000
    return ran


def x_of(ms):
    return LEFT + ms / (END * 1000) * WIDTH


def y_of(place):
    return TOP + place * ROW


def draw_row(out, place, span):
    y = y_of(place) + ROW / 2
    begin = x_of(span[1]) if span else x_of(END * 1000)
    out.append('<text class="small" x="%d" y="%.1f" text-anchor="end">host %d</text>' % (
        LEFT - 8, y + 3.5, place + 1))
    if place:
        out.append('<line class="wait" x1="%d" y1="%.1f" x2="%.1f" y2="%.1f"/>' % (LEFT, y, begin, y))
    if not span:
        return
    end = x_of(span[2])
    out.append('<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%d" rx="2"/>' % (
        "dead" if span[4] else "run", begin, y - 5, end - begin, 10))
    if end + 130 < LEFT + WIDTH:
        out.append('<text class="small" x="%.1f" y="%.1f">%stoken %d</text>' % (
            end + (14 if span[4] else 6), y + 3.5, "killed with -9, " if span[4] else "", span[3]))
    if span[4]:
        out.append('<path class="kill" d="M%.1f %.1fl8 8m0 -8l-8 8"/>' % (end - 1, y - 4))


def draw_axis(out, height):
    y = TOP + HOSTS * ROW + 6
    out.append('<line class="axis" x1="%d" y1="%d" x2="%d" y2="%d"/>' % (LEFT, y, LEFT + WIDTH, y))
    for second in range(int(END) + 1):
        out.append('<text class="small" x="%.1f" y="%d" text-anchor="middle">%d s</text>' % (
            x_of(second * 1000), height - 8, second))


def picture(data):
    ran = spans(data)
    order = [span[0] for span in ran] + [h for h in range(HOSTS) if h not in {span[0] for span in ran}]
    takeover = ran[1][1] - data["killed"]
    width, height = LEFT + WIDTH + RIGHT, TOP + HOSTS * ROW + 30
    title = "%d hosts, one runs at a time; kill -9, and the next one runs %.0f ms later" % (HOSTS, takeover)
    out = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" '
           'aria-labelledby="title desc">' % (width, height),
           '<title id="title">%s</title>' % title,
           '<desc id="desc">A timeline of one recorded run on Redis. Each row is a host, in the order of '
           'their turns; a bar is the time in which its command ran, a dotted line the time it waited. No '
           'two bars overlap.</desc>',
           "<style>%s</style>" % STYLE,
           '<text x="%d" y="22">%s</text>' % (LEFT, title)]
    for place, host in enumerate(order):
        draw_row(out, place, next((span for span in ran if span[0] == host), None))
    draw_axis(out, height)
    return "\n".join(out + ["</svg>"]) + "\n"


def main():
    if sys.argv[1:2] == ["run"] and len(sys.argv) == 3:
        run(sys.argv[2])
    elif sys.argv[1:] == ["draw"]:
        SVG.write_text(picture(json.loads(DATA.read_text(encoding="ascii"))), encoding="ascii")
    elif sys.argv[1:] == ["check"]:
        sys.exit(0 if SVG.read_text(encoding="ascii") ==
                 picture(json.loads(DATA.read_text(encoding="ascii"))) else
                 "picture: docs/picture.svg is not what docs/picture.py draws from docs/picture.json")
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
