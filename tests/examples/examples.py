# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""The programs of examples/ do what they say, and stay short enough to be read.

Usage: examples.py FOLDER_OF_THE_PROGRAMS STILE
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

PATIENCE_S = 60
LINES = 82  # with the two of the licence
HERE = os.path.dirname(os.path.abspath(__file__))
SOURCES = os.path.join(HERE, "..", "..", "examples")
FOLDER, STILE = sys.argv[1:3]


def start(name, *args):
    return subprocess.Popen([os.path.join(FOLDER, "example-" + name), *args],
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def finish(process):
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out.splitlines(), err


def same(got, wanted):
    assert got == wanted, "%r instead of %r" % (got, wanted)


def hello_is_alone():
    token = re.compile(r"alone, with token (\d+)")
    copies = [finish(p) for p in [start("hello") for _ in range(5)]]
    same([(code, err) for code, _, err in copies], [(0, "")] * 5)
    tokens = {int(token.fullmatch(out[0]).group(1)) for _, out, _ in copies}
    same(len(tokens), 5)


def fenced_refuses_the_late_writer():
    path = os.path.join(os.environ["WHERE"], "ledger.txt")
    code, out, err = finish(start("fenced", path))
    same((code, err), (0, ""))
    same([line.split(": ")[-1] for line in out], ["done", "done", "REFUSED", "LOST"])
    with open(path, encoding="utf-8") as ledger:
        same(ledger.read(), "opening balance\n100 paid in\n")


def fenced_counts_on():
    """What is stale stays stale from run to run."""
    path = os.path.join(os.environ["WHERE"], "ledger.txt")
    same(finish(start("fenced", path))[0], 0)
    code, out, _ = finish(start("fenced", path))
    same(code, 0)
    same(out[0].endswith("done"), True)


def epoll_works_without_a_thread():
    code, out, err = finish(start("epoll"))
    same((code, err), (0, ""))
    same(out, ["working, 2 to go", "working, 1 to go", "working, 0 to go", "released"])


def lost_works_to_the_end():
    code, out, err = finish(start("lost", "2"))
    same((code, err), (0, ""))
    same(out[1:], ["step 1 done", "step 2 done"])


def lost_stops_when_told():
    process = start("lost")
    assert process.stdout.readline().startswith("holding it, token ")
    subprocess.run([STILE, "break", "report"], check=True, stdout=subprocess.DEVNULL,
                   timeout=PATIENCE_S)
    code, out, err = finish(process)
    same(code, 76)
    same(out[-1].startswith("stopped in step "), True)
    assert "releasing 'report'" in err, err


def pool_keeps_to_its_slots():
    code, out, err = finish(start("pool"))
    same((code, err), (0, ""))
    same(len(out), 7)
    assert re.fullmatch(r"6 jobs done, never more than [12] at once", out[-1]), out[-1]


def examples_are_short():
    for name in sorted(os.listdir(SOURCES)):
        if name.endswith((".c", ".cpp")):
            with open(os.path.join(SOURCES, name), encoding="utf-8") as source:
                lines = len(source.readlines())
            assert lines < LINES, "%s has %d lines" % (name, lines)


def guard_gives_up_and_succeeds():
    """The one in C++."""
    held = subprocess.Popen([STILE, "run", "report", "--", "sh", "-c", "echo held; read line"],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    same(held.stdout.readline(), "held\n")
    code, out, err = finish(start("guard"))
    same((code, out, err), (75, [], "guard: not granted in time\n"))
    held.communicate("go\n", timeout=PATIENCE_S)
    code, out, err = finish(start("guard"))
    same((code, err), (0, ""))
    assert re.fullmatch(r"report written with token \d+", out[0]), out


TESTS = [
    hello_is_alone,
    fenced_refuses_the_late_writer,
    fenced_counts_on,
    epoll_works_without_a_thread,
    lost_works_to_the_end,
    lost_stops_when_told,
    pool_keeps_to_its_slots,
    examples_are_short,
    guard_gives_up_and_succeeds,
]


def main():
    failed = 0
    print("1..%d" % len(TESTS))
    for number, test in enumerate(TESTS, 1):
        where = os.environ["WHERE"] = tempfile.mkdtemp(prefix="stile-examples-")
        os.mkdir(os.path.join(where, "state"), 0o700)
        os.environ["STILE_ENGINE"] = "local:" + os.path.join(where, "state")
        try:
            test()
            print("ok %d - %s" % (number, test.__name__), flush=True)
        except Exception as error:  # whatever it is, the next test still runs
            failed += 1
            print("not ok %d - %s: %r" % (number, test.__name__, error), flush=True)
        finally:
            shutil.rmtree(where)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
