#!/usr/bin/env python3
# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Four ways to sell from a stock, as examples/scenarios/stock.py has them: how many sales in a second?

    bench/stock.py run BUILD    runs them on a PostgreSQL of its own and writes docs/stock.json
    bench/stock.py draw         draws docs/stock.svg from that, the same bytes each time
    bench/stock.py check        whether the picture is that of the data

Ten processes buy as fast as they can. Low contention: each buys one of 1,000 products at random. High: all buy the
same. The ways take turns, and the result is the median of the rounds. The server syncs each commit.
"""
import json
import multiprocessing
import os
import pathlib
import random
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA, SVG = ROOT / "docs" / "stock.json", ROOT / "docs" / "stock.svg"
BUYERS, PRODUCTS, ROUNDS, SECONDS = 10, 1000, 7, 1.5
WAYS = ("a lock", "SELECT FOR UPDATE", "a version", "one statement")


# ---- running ----

def buy_on(url, way, products, meet, sold):
    import psycopg2
    import stock
    function = {"a lock": lambda: stock.Locked(url), "SELECT FOR UPDATE": lambda: stock.for_update,
                "a version": lambda: stock.version, "one statement": lambda: stock.statement}[way]()
    connection, n = psycopg2.connect(url), 0
    function(connection, random.randrange(products))  # sessions are open, statements are known
    meet.wait()
    began = time.monotonic()
    while time.monotonic() < began + SECONDS:
        n += function(connection, random.randrange(products))
    sold.put(n / (time.monotonic() - began))


def measure(url, way, products):
    """Sales in a second, of all buyers."""
    meet, sold = multiprocessing.Barrier(BUYERS), multiprocessing.Queue()
    buyers = [multiprocessing.Process(target=buy_on, args=(url, way, products, meet, sold)) for _ in range(BUYERS)]
    for buyer in buyers:
        buyer.start()
    rates = [sold.get() for _ in buyers]
    for buyer in buyers:
        buyer.join()
    return sum(rates)


def run(build):
    sys.path[:0] = [str(ROOT / "examples" / "scenarios"), str(ROOT / "tests" / "servers")]
    from postgres_server import PostgresServer
    found = {contention: {way: [] for way in WAYS} for contention in ("low", "high")}
    with PostgresServer(durable=True) as server:
        subprocess.run([build + "/cli/stile", "setup", server.url], check=True)
        server.sql("create table stock (id int primary key, n int, version int default 0);"
                   "insert into stock select i, 1000000 from generate_series(0, %d) i" % (PRODUCTS - 1))
        for _ in range(ROUNDS):
            for contention, products in (("low", PRODUCTS), ("high", 1)):
                for way in WAYS:
                    found[contention][way].append(round(measure(server.url, way, products), 1))
    DATA.write_text(json.dumps(found, indent=1) + "\n", encoding="ascii")
    for contention, ways in found.items():
        print(contention, {way: round(statistics.median(rates)) for way, rates in ways.items()})


# ---- drawing ----

LEFT, TOP, BAR, GAP, HEIGHT = 48, 40, 62, 40, 200
STYLE = """
  text { font: 12px ui-sans-serif, system-ui, sans-serif; fill: #24292f }
  .small { font-size: 10px; fill: #57606a } .axis { stroke: #d0d7de }
  .w0 { fill: #8250df } .w1 { fill: #0969da } .w2 { fill: #bf8700 } .w3 { fill: #2da44e }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .small { fill: #8d96a0 } .axis { stroke: #30363d }
  }
"""


def group(out, x, name, rates, scale):
    base = TOP + HEIGHT
    for i, way in enumerate(WAYS):
        rate = statistics.median(rates[way])
        at, high = x + i * BAR, rate * scale
        out.append('<rect class="w%d" x="%d" y="%.1f" width="%d" height="%.1f"/>' % (i, at, base - high, BAR - 8, high))
        out.append('<text class="small" x="%.1f" y="%.1f" text-anchor="middle">%d</text>' % (
            at + (BAR - 8) / 2, base - high - 4, round(rate)))
    out.append('<text x="%.1f" y="%d" text-anchor="middle">%s</text>' % (x + len(WAYS) * BAR / 2, base + 18, name))


def picture(data):
    wide = len(WAYS) * BAR
    width, height = LEFT + 2 * wide + GAP + 16, TOP + HEIGHT + 56
    scale = (HEIGHT - 10) / max(statistics.median(rates) for ways in data.values() for rates in ways.values())
    out = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-labelledby="title">' % (width, height),
           '<title id="title">Sales in a second by ten buyers on PostgreSQL, four ways, at low and high contention</title>',
           "<style>%s</style>" % STYLE,
           '<text x="%d" y="20">sales in a second, ten buyers, PostgreSQL</text>' % LEFT]
    group(out, LEFT, "low contention: 1,000 products", data["low"], scale)
    group(out, LEFT + wide + GAP, "high contention: one product", data["high"], scale)
    out.append('<line class="axis" x1="%d" y1="%d" x2="%d" y2="%d"/>' % (LEFT - 8, TOP + HEIGHT, width - 8, TOP + HEIGHT))
    for i, way in enumerate(WAYS):
        x = LEFT + i * 130
        out.append('<rect class="w%d" x="%d" y="%d" width="10" height="10"/>' % (i, x, height - 22))
        out.append('<text class="small" x="%d" y="%d">%s</text>' % (x + 15, height - 13, way))
    return "\n".join(out + ["</svg>"]) + "\n"


def main():
    if sys.argv[1:2] == ["run"] and len(sys.argv) == 3:
        build = os.path.abspath(sys.argv[2])
        if "LD_LIBRARY_PATH" not in os.environ:  # it is read when a program starts
            env = {**os.environ, "LD_LIBRARY_PATH": build + "/src", "STILE_MODULES": build + "/src"}
            os.execve(sys.executable, [sys.executable, __file__, "run", build], env)
        run(build)
        return
    drawn = picture(json.loads(DATA.read_text(encoding="ascii")))
    if sys.argv[1:] == ["draw"]:
        SVG.write_text(drawn, encoding="ascii")
    elif sys.argv[1:] == ["check"]:
        sys.exit(0 if SVG.read_text(encoding="ascii") == drawn else
                 "stock: docs/stock.svg is not what bench/stock.py draws from docs/stock.json")
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
