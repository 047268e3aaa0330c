# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""The page of `stile play` in a browser: its stories, what a reader can break, and the same runs
natively.

Usage: play.py STILE_SIM PLAY_HTML STORIES DIRECTORY    pictures go to DIRECTORY
"""
import glob
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request

from browser import run_pages

SIM, PAGE, STORIES, OUT = sys.argv[1:5]
PAGE_MAX = 1500000
# Of etcd, 5 has waiters behind a claim with ghosts, and 16 what is stored of the wall clock; of
# redlock, 44 has a message of the C library.
SEEDS = (("redlock", "3"), ("redlock", "42"), ("redlock", "44"), ("redis", "17"), ("etcd", "5"), ("etcd", "16"),
         ("zookeeper", "8"))
ENGINES = "redis", "redlock", "etcd", "zookeeper"
FIRST_SEEDS = 20

# Waits until the machine runs, which a browser does in its own time.
READY = """
const done = arguments[0], end = performance.now() + 60000;
const look = () => window.stilePlay ? done(performance.now())
  : performance.now() > end ? done(null) : setTimeout(look, 20);
look();"""
CHOOSE = """
const play = window.stilePlay;
play.choose(play.stories.find((story) => story.setting("title").startsWith(arguments[0])));
"""
GO = "const player = window.stilePlay.player; player.go(player.run.stepAt(arguments[0] * 1e9));"
# As a reader does it.
ACT = """
const [subject, action] = arguments;
const select = (id, value) => {
  document.getElementById(id).value = value;
  document.getElementById(id).dispatchEvent(new Event("change"));
};
select("subject", subject);
select("action", action);
document.getElementById("do").click();
"""
TICK = """
const box = document.getElementById(arguments[0]);
if (box.checked !== arguments[1]) box.click();
"""
OUTCOMES = """
return [...document.querySelectorAll("#outcomes tbody tr")].map((row) =>
  [row.cells[0].textContent, ...[...row.cells].slice(1).map((cell) => Number(cell.textContent))]);
"""
CHOOSE_OPTION = """
const [id, value] = arguments, element = document.getElementById(id);
element.value = value;
element.dispatchEvent(new Event("change"));
return element.value;
"""
UNDER_WAY = """
return [...document.querySelectorAll("#subject optgroup[label='Messages under way'] option")]
  .map((option) => [option.value, option.textContent]);
"""
# Each act that is offered at a time, on each subject, as a line more: those that break a rule.
TRY_ALL = """
const play = window.stilePlay, at = arguments[0], broken = [];
play.player.go(play.player.run.stepAt(at * 1e9));
for (const subject of [...document.querySelectorAll("#subject option")].map((option) => option.value)) {
  document.getElementById("subject").value = subject;
  play.offerActions();
  for (const action of [...document.querySelectorAll("#action option")].map((option) => option.value)) {
    const { verdict } = play.machine.story(`${play.story.text.trimEnd()}\\nat ${at} ${subject} ${action}\\n`);
    if (!verdict.holds) broken.push(`${subject} ${action}: ${verdict.rule}`);
  }
}
return broken;
"""
CAPTIONS = """
const player = window.stilePlay.player;
return player.run.steps.map((_, i) => {
  player.go(i);
  return document.getElementById("caption").textContent;
});
"""
# Pairs of labels in the picture of which one covers the other, and by how much the page is too wide.
COVERED = """
const player = window.stilePlay.player, wide = document.documentElement.clientWidth, found = new Set();
for (const i of player.run.steps.keys()) {
  player.go(i);
  const left = document.querySelector("#diagram svg").getBoundingClientRect().left + player.diagram.gutter;
  const labels = [...document.querySelectorAll("#diagram text")].filter((one) => one.textContent.length > 1).map((one) => {
    const place = one.getBoundingClientRect();
    return { one, top: place.top, bottom: place.bottom, right: place.right,
             left: one.closest("[clip-path]") ? Math.max(left, place.left) : place.left };
  });
  labels.forEach((a, n) => labels.slice(n + 1).forEach((b) => {
    if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 3 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 5)
      found.add(`${a.one.textContent} / ${b.one.textContent} in step ${i}`);
  }));
}
return [[...found], document.documentElement.scrollWidth - wide];
"""
NOW = """
return [...document.querySelectorAll("#now table")].map((table) =>
  [...table.rows].map((row) => [...row.cells].map((cell) => cell.textContent.trim())));
"""
VERDICT = "return window.stilePlay.player.run.verdict;"
TRACE = "return window.stilePlay.player.run.lines.map((line) => [line.at, line.text]);"
SUM = "return window.stilePlay.player.run.trace;"
SUMS = """
const [engine, n] = arguments, sums = [];
for (let seed = 1; seed <= n; seed++) sums.push(window.stilePlay.machine.seed(engine, seed).trace);
return sums;
"""


def stories():
    return sorted(glob.glob(os.path.join(STORIES, "*.story")))


def title_of(path):
    with open(path, encoding="utf-8") as file:
        return re.search(r"(?m)^title (.*)$", file.read()).group(1)


def simulate(*args):
    done = subprocess.run([SIM, *args], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


def choose(browser, title, at=None):
    browser.run(CHOOSE, title)
    if at is not None:
        browser.run(GO, at)


def steps_through(browser, title, wanted):
    """The captions of a story, from its first step to its last, by the keyboard."""
    choose(browser, title, 0.45)
    browser.run("""const grain = document.getElementById("grain");
                   grain.value = "told"; grain.dispatchEvent(new Event("change"));""")
    seen = [browser.text("caption")]
    for _ in range(60):
        browser.press("right")
        seen.append(browser.text("caption"))
    for text in wanted:
        assert any(text in caption for caption in seen), (text, seen)


# ---- cases ----

def the_page_is_small_and_starts_at_once(browser):
    """Its size is bounded; its start only printed, because a test machine is busy."""
    assert os.path.getsize(PAGE) < PAGE_MAX
    browser.open(PAGE)
    ready = browser.call("POST", "/execute/async", {"script": READY, "args": []})
    assert ready is not None, browser.complaints()
    print("# %d bytes, ready after %d ms" % (os.path.getsize(PAGE), ready))
    assert browser.run("return document.getElementById('story').options.length") == len(stories())


def a_story_is_the_same_in_webassembly_and_natively(browser):
    for path in stories():
        choose(browser, title_of(path))
        assert browser.text("error") == "", (path, browser.text("error"))
        native = simulate("--script", path)
        assert native.rstrip().endswith("trace " + browser.run(SUM)), (path, native, browser.run(SUM))


def a_seed_is_the_same_in_webassembly_and_natively(browser):
    """Line by line, and to the nanosecond."""
    for engine, seed in SEEDS:
        browser.run("""document.getElementById("seed-engine").value = arguments[0];
                       document.getElementById("seed").value = arguments[1];
                       document.getElementById("run-seed").click();""", engine, seed)
        assert browser.text("error") == ""
        lines = ["%d.%09d %s" % (*divmod(at, 10**9), text) for at, text in browser.run(TRACE)]
        printed = simulate("--engine", engine, "--seed", seed, "--trace").splitlines()
        assert lines == printed[:-1] and len(lines) > 500, (engine, seed, len(lines), len(printed))


def the_first_seeds_of_each_engine_are_the_same(browser):
    """By their sums."""
    for engine in ENGINES:
        for seed, found in enumerate(browser.run(SUMS, engine, FIRST_SEEDS), 1):
            native = simulate("--engine", engine, "--seed", str(seed))
            assert native.rstrip().endswith("trace " + found), (engine, seed, native, found)


def redlock_is_told_step_by_step(browser):
    steps_through(browser, "Redlock: a majority", [
        "A has the keys of a majority", "is granted x with token 1;", "waits in their queues",
        "n4 no longer answers", "is granted x with token 2;", "n4 is back"])


def fencing_is_told_step_by_step(browser):
    steps_through(browser, "Fencing", [
        "A holds x.", "A is granted x", "B is granted x", "accepts the write of B", "refuses the write of A"])


def the_guard_decides_whose_write_stays(browser):
    choose(browser, "Fencing", 7.3)
    assert browser.run(OUTCOMES) == [["the store takes every write", 2, 1, 0, 1],
                                     ["the store checks tokens", 2, 1, 1, 0]]
    browser.run(TICK, "guard", False)
    assert "1 update is lost" in browser.text("verdict"), browser.text("verdict")
    browser.run(GO, 7.0003)
    assert "has not seen the write of B: that update is lost" in browser.text("caption"), browser.text("caption")
    browser.run(TICK, "guard", True)
    assert "1 late write refused" in browser.text("verdict")


def redlock_can_be_broken(browser):
    """Three of five nodes are stopped: the holder loses its lock, in time, and says so."""
    choose(browser, "Redlock: a majority", 3.6)
    for node in "n1", "n2", "n3":
        browser.run(ACT, node, "stops")
        assert browser.text("error") == ""
    losses = browser.run("return window.stilePlay.player.run.verdict.losses")
    assert losses == 1, losses
    for _ in range(3):
        browser.click("undo")
    assert browser.run("return window.stilePlay.player.run.verdict.losses") == 0
    assert browser.run("return document.getElementById('undo').disabled")


def fencing_can_be_broken(browser):
    """Without the pause of A nothing goes wrong: B waits for its turn."""
    choose(browser, "Fencing", 1.2)
    browser.run(ACT, "A", "resumes")
    refused = browser.run("return window.stilePlay.player.run.verdict.refused")
    grants = browser.run("return window.stilePlay.player.run.verdict.grants")
    assert (grants, refused) == (1, 0), (grants, refused)


def table_with(browser, head):
    """The rows of the table below the picture that has this column."""
    return next((rows[1:] for rows in browser.run(NOW) if head in rows[0]), [])


def votes_and_validity_are_shown(browser):
    """One node's answer at a time, and what is taken off the lease."""
    choose(browser, "Redlock: a majority", 0.5)
    browser.run(CHOOSE_OPTION, "grain", "all")
    assert table_with(browser, "Votes of") == [["x", "A", "none", "0 of 5: 3 are needed"]]
    seen = []
    for _ in range(40):
        browser.press("right")
        seen += [row[3] for row in table_with(browser, "Votes of") if row[1] == "A"]
    for text in "1 of 5: 3 are needed", "2 of 5: 3 are needed", "3 of 5: a majority":
        assert text in seen, (text, seen)
    (lock, holder, lease, elapsed, drift, margin, valid), = table_with(browser, "Elapsed")
    assert (lock, holder, lease, drift, margin) == ("x", "A", "3.00 s", "− 32 ms", "− 150 ms"), (lease, drift, margin)
    assert valid == "= 2.82 s" and elapsed.endswith(" ms"), (elapsed, valid)


def a_message_can_be_held_and_let_go(browser):
    choose(browser, "Redis: the holder dies", 0.5)
    (message, text), = browser.run(UNDER_WAY)
    assert text.startswith("A → n1: "), text
    browser.run(ACT, message, "held")
    granted = "return window.stilePlay.player.run.holds.filter((hold) => hold.client === 'A').length"
    assert browser.run(granted) == 0 and browser.text("error") == ""
    browser.run(GO, 0.8)
    assert [message, text] in browser.run(UNDER_WAY)
    browser.run(ACT, message, "freed")
    assert browser.run(granted) == 1
    choose(browser, "Redis: the holder dies", 0.5)
    browser.run(ACT, message, "late 0.5")
    at = browser.run("return window.stilePlay.player.run.messages.get(Number(arguments[0])).came", message.split()[1])
    assert 1.0e9 <= at < 1.1e9, at


def a_message_can_be_lost(browser):
    """Its connection breaks; the library asks the server again, and the lock is granted once."""
    choose(browser, "Redis: the holder dies", 0.5)
    (message, _), = browser.run(UNDER_WAY)
    browser.run(ACT, message, "lost")
    run = browser.run("const run = window.stilePlay.player.run;"
                      "return [run.messages.get(Number(arguments[0])).lost !== Infinity, run.verdict.holds];", message.split()[1])
    assert run == [True, True], run
    assert "a message is lost, and its connection breaks (A, n1)" in browser.text("details"), browser.text("details")


def the_lease_and_its_renewal_can_be_chosen(browser):
    choose(browser, "Redlock: a majority", 2.5)
    assert browser.run("return document.getElementById('lease').value") == "3"
    deadline = "return window.stilePlay.player.run.holds[0].deadline(0.6e9) / 1e9"
    assert 3.2 < browser.run(deadline) < 3.4, browser.run(deadline)
    browser.run(CHOOSE_OPTION, "lease", "5")
    assert 5.1 < browser.run(deadline) < 5.3, browser.run(deadline)
    browser.run(CHOOSE_OPTION, "lease", "2")
    for renewed, losses in (True, 0), (False, 2), (True, 0):
        browser.run(TICK, "renewal", renewed)
        assert browser.run(VERDICT)["losses"] == losses, (renewed, browser.run(VERDICT))


def raising_before_reading_matters(browser):
    choose(browser, "Fencing: raise", 5.3)
    assert browser.run(VERDICT)["refused"] == 1 and browser.run(VERDICT)["holds"]
    browser.run(TICK, "raise", False)
    assert browser.run(VERDICT)["refused"] == 0
    assert "Rule broken: write-lost." in browser.text("verdict"), browser.text("verdict")
    browser.run(TICK, "raise", True)
    assert browser.run(VERDICT)["holds"]


def a_queue_of_zookeeper_is_told(browser):
    steps_through(browser, "ZooKeeper", [
        "A has the lowest number", "C is dead", "D was told, looked again", "Only B is woken", "D is granted x"])
    choose(browser, "ZooKeeper", 2.2)
    browser.run(ACT, "B", "dies")
    assert browser.text("error") == "" and browser.run(VERDICT)["grants"] == 2


def a_lease_of_etcd_is_told(browser):
    steps_through(browser, "etcd", ["Its token is the revision", "A is paused", "refuses the write of A"])
    choose(browser, "etcd", 2.4)
    for node in "n2", "n3":
        browser.run(ACT, node, "stops")
    assert browser.text("error") == "" and browser.run(VERDICT)["grants"] == 1


def the_four_failures_of_setnx(browser):
    for title, wanted in (("SETNX, 1", "At the end, B still waits."), ("SETNX, 2", "A was not told that it had lost x"),
                          ("SETNX, 3", "A was not told that it had lost x"), ("SETNX, 4", "At the end, B still waits.")):
        choose(browser, title)
        assert browser.text("error") == "" and wanted in browser.text("verdict"), (title, browser.text("verdict"))
        assert browser.run("return document.getElementById('variants').hidden")
    choose(browser, "SETNX, 3", 3.5)
    holders = browser.run("const run = window.stilePlay.player.run;"
                          "return run.holdsAt(3.5e9).filter((hold) => hold.deadline(3.5e9) > 3.5e9).map((hold) => hold.client)")
    assert sorted(holders) == ["B", "C"], holders
    choose(browser, "SETNX, 1", 3)
    browser.run(ACT, "n1", "flushes")
    assert "still waits" not in browser.text("verdict"), browser.text("verdict")


def a_lock_of_a_session_is_told(browser):
    """A killed holder gives way at once, a paused one does not, until an administrator ends its session."""
    steps_through(browser, "PostgreSQL: a lock", [
        "A is granted x with token 1, as long as its session lives", "B was granted x at once", "safe, and stuck",
        "The administrator has ended the session of B", "C is granted x with token 3",
        "refuses the write of B", "B learns that its session is over"])
    assert browser.run(OUTCOMES) == [["the store takes every write", 3, 1, 0, 1],
                                     ["the store checks tokens", 3, 1, 1, 0]]
    assert browser.run("return document.getElementById('lease-label').hidden")
    choose(browser, "PostgreSQL: a lock", 1.5009)
    waits = browser.run("return window.stilePlay.player.run.waits.find((wait) => wait.claim.client === 'B').to")
    assert 1.5e9 < waits < 1.502e9, waits
    browser.run(GO, 5.2)
    assert table_with(browser, "Session of")[0][:3] == ["db", "x", "B"], browser.run(NOW)
    browser.run(TICK, "guard", False)
    assert "Exclusion was not promised here, and 1 update is lost" in browser.text("verdict"), browser.text("verdict")


def statements_of_a_session_are_shown(browser):
    choose(browser, "PostgreSQL: a lock", 1.0)
    browser.run(CHOOSE_OPTION, "grain", "all")
    seen = []
    for _ in range(60):
        browser.press("right")
        seen.append(browser.text("details") + browser.text("caption"))
    for text in ("SELECT pg_advisory_lock(hashtextextended('x', 0))", "SELECT nextval('tokens')",
                 "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'B'",
                 "FATAL: terminating connection due to administrator command", "from db reaches B, which is paused"):
        assert any(text in details for details in seen), (text, seen)


def a_session_can_be_broken(browser):
    """Without the administrator, C waits until the end; one that is ended while it waits gives up."""
    choose(browser, "PostgreSQL: a lock", 5)
    text = browser.run("return document.getElementById('text').value")
    browser.run("document.getElementById('text').value = arguments[0]; document.getElementById('again').click();",
                re.sub(r"at \S+ (dba ends B|B resumes)\n", "", text))
    assert browser.text("error") == "" and browser.run(VERDICT)["grants"] == 2
    assert browser.text("verdict").endswith("At the end, C still waits."), browser.text("verdict")
    choose(browser, "PostgreSQL: a lock", 1.3)
    browser.run(ACT, "dba", "ends B")
    assert "B does not get x: UNREACHABLE" in browser.run("""
        const run = window.stilePlay.player.run, step = run.steps.find((one) => one.rows.some((row) => row[3]?.kind === "answered"));
        window.stilePlay.player.go(run.steps.indexOf(step));
        return document.getElementById("caption").textContent;""")
    assert browser.run("return window.stilePlay.player.run.holds.map((hold) => hold.client)") == ["A", "C"]
    choose(browser, "PostgreSQL: a lock", 0.9)
    browser.run(ACT, "db", "crashes")
    assert browser.text("error") == "" and browser.run(VERDICT)["grants"] == 1


def a_session_that_is_cut_is_told(browser):
    steps_through(browser, "PostgreSQL: a connection", [
        "nothing passes between them (A, db)", "Neither end is told", "B is granted x with token 2", "refuses the write of A",
        "A is told that it has lost x", "A learns that its session is over"])
    choose(browser, "PostgreSQL: a connection", 3)
    browser.run(ACT, "A", "checks x") # held up by the cut
    assert browser.run(VERDICT)["grants"] == 2
    browser.click("undo")
    browser.run(GO, 3)
    browser.run(ACT, "A db", "open")
    browser.run(ACT, "A", "checks x")
    at = browser.run("return window.stilePlay.player.run.holds[1].at / 1e9")
    assert 5.5 < at < 5.7, (at, "a statement has kept the session for four seconds more")


def captions_of_what_was_changed_say_so(browser):
    """A story's author did not know what the reader would do."""
    choose(browser, "Fencing", 1.2)
    browser.run(ACT, "A", "resumes")
    for at, caption in (1.05, "A has just checked"), (3.8, "Without your change: The lease of A has ended."):
        browser.run(GO, at)
        assert browser.text("caption").startswith(caption), browser.text("caption")
        assert caption in browser.text("details")
    browser.click("undo")
    browser.run(GO, 3.8)
    assert browser.text("caption").startswith("The lease of A has ended."), browser.text("caption")


def a_pooler_gives_one_lock_to_two(browser):
    steps_through(browser, "PostgreSQL: behind", [
        "A is granted x with token 1", "B is granted x with token 2", "B was lent the same session", "refuses the write of A",
        "its lock stays", "x is still locked"])
    choose(browser, "PostgreSQL: behind", 1.3)
    assert sorted(row[1] for row in table_with(browser, "Holder")) == ["A", "B"]
    browser.run(GO, 6.1)
    assert table_with(browser, "Session of") == [["pool", "x", "the pooler", "", ""]], browser.run(NOW)
    text = browser.run("return document.getElementById('text').value")
    browser.run("document.getElementById('text').value = arguments[0]; document.getElementById('again').click();",
                text.replace("option pooler=transaction\n", "").replace("at 1 B tries x", "at 1 B locks x"))
    assert browser.text("error") == ""
    holds = browser.run("return window.stilePlay.player.run.holds.map((hold) => [hold.client, hold.at / 1e9])")
    assert [client for client, _ in holds] == ["A", "B"] and 3.5 < holds[1][1] < 3.6, holds


def crowds_are_compared(browser):
    """How many requests reach the server while A holds the lock, and the most of them in 20 ms."""
    count = """
const run = window.stilePlay.player.run;
const came = run.sent.filter((message) => message.to_server && message.came > 1.3e9 && message.came < 2.3e9)
  .map((message) => message.came);
return [came.length, Math.max(0, ...came.map((at) => came.filter((other) => other >= at && other < at + 2e7).length))];
"""
    figures = {}
    for title in "A crowd that queues", "A crowd that retries in step", "A crowd that retries with jitter":
        choose(browser, title)
        assert browser.text("error") == "", browser.text("error")
        figures[title.split()[-1]] = browser.run(count)
    print("# requests in a second, and in 20 ms: %s" % figures)
    assert figures["step"][1] == 7 and figures["step"][0] >= 30, figures
    assert figures["jitter"][1] < 7 and figures["jitter"][0] >= 25, figures


def the_critique_of_redlock_can_be_replayed(browser):
    choose(browser, "Redlock: a clock", 4.2)
    plain, open_store, guarded = browser.run(OUTCOMES)
    assert plain[1] == 2 and plain[4] == 1 and plain[3] == 0, plain
    assert guarded[1] == 2 and guarded[3] == 1 and guarded[4] == 0, guarded
    assert open_store[4] == 1, open_store
    choose(browser, "Redlock: a node that forgets", 3)
    assert browser.run("return window.stilePlay.player.run.verdict.grants") == 1
    browser.run(TICK, "fence", False)
    assert "Rule broken: overlap. B was granted x" in browser.text("verdict"), browser.text("verdict")


def every_step_of_every_story_has_a_caption(browser):
    for path in stories():
        choose(browser, title_of(path))
        for text in browser.run(CAPTIONS):
            assert re.fullmatch(r"\S.*[.?…]", text), (path, text)
            assert not re.search(r"undefined|null|NaN|Infinity|[0-9a-f]{40}|\bc\d\b", text), (path, text)


def what_is_offered_can_be_done(browser):
    """Whatever a reader does, the page accepts it, and accuses no client of the library wrongly."""
    for title in "Redlock: a majority", "Fencing: the holder", "Redis: the holder dies", "etcd", "PostgreSQL: a lock", \
                 "PostgreSQL: a connection", "PostgreSQL: behind":
        choose(browser, title)
        for at in 1.3, 3.1:
            broken = browser.run(TRY_ALL, at)
            assert not broken, (title, at, broken)


def locks_by_hand_and_of_the_library_exclude_each_other(browser):
    choose(browser, "SETNX, 1", 3)
    browser.run(ACT, "B", "asks x ttl 3")
    assert browser.run(VERDICT)["grants"] == 1 and browser.run(VERDICT)["holds"]
    assert table_with(browser, "Key of")[0][:3] == ["n1", "x", "A"], browser.run(NOW)


def the_space_bar_opens_the_text(browser):
    choose(browser, "Fencing", 1)
    browser.run("document.querySelector('summary').focus()")
    browser.press("space")
    assert browser.run("return document.querySelector('details').open") and browser.text("play") == "Play"
    browser.press("space")
    assert not browser.run("return document.querySelector('details').open")
    browser.run("document.activeElement.blur()")
    browser.press("space")
    assert browser.text("play") == "Stop"
    browser.press("space")


def a_wrong_line_is_named(browser):
    choose(browser, "Fencing")
    before = browser.run(SUM)
    for text, expected in (("engine redis\nclients A\nat 1 Z pauses\n", "line 3: there is no Z"),
                           ("engine redis\nclients A\nat 1 A flies\n", "line 3: A cannot do this"),
                           ("engine mysql\n", "line 1: no engine mysql"),
                           ("clients A\nat 1 A pauses\n", "line 2: a story names its engine"),
                           ("engine redis\nclients A\nend 1e9\n", '"end" is at most 120'),
                           ("engine redis\noption proxy=1\n", "line 2: no option proxy=1"),
                           ("engine redis\noption pooler=transaction\nclients A\n", "this is an option of sessions"),
                           ("engine sessions\noption fence=off\nclients A\n", "fence=off is an option of redlock"),
                           ("engine sessions\noption idle_session_timeout=0\n", "idle_session_timeout is at most 120"),
                           ("engine redis\nclients A\nat 1 A locks x\n", 'line 3: "locks" needs the engine sessions'),
                           ("engine sessions\nclients A\nat 1 A asks x\n", 'line 3: "asks" needs the library'),
                           ("engine sessions\nclients A\nat 1 A ends n1\n", 'line 3: "ends" is followed by a client'),
                           ("engine redis\nclients A\nend -1\n", "is at most 120"),
                           ("engine redis\nclients A\n" + "".join("at 1 A asks %c\n" % name for name in "abcde"),
                            "line 7: 4 names at most"),
                           ("engine redis\nclients A\nat 1 A n1 odd\n", 'line 3: a path cannot be "odd"'),
                           ("engine redis\nclients A\nat 1 message 7 odd\n", 'line 3: a message cannot be "odd"'),
                           ("engine etcd\nclients A\nat 1 A sets x\n", 'line 3: "sets" needs the engine redis'),
                           ("engine redis\nclients A\n" + "x" * 400, "line 3: is longer than"),
                           ("engine redlock\nnodes 4\nclients A\n", "no group of 4 nodes")):
        browser.run("document.getElementById('text').value = arguments[0];"
                    "document.getElementById('again').click();", text)
        assert expected in browser.text("error"), (text, browser.text("error"))
        assert browser.run(SUM) == before


def the_command_writes_the_page(_):
    command = os.path.join(os.path.dirname(PAGE), "stile-play")
    path = os.path.join(OUT, "play-copy.html")
    for args, code in ((("--out", path), 0), (("--out", "/dev/full"), 74), (("--bad",), 64), (("more",), 64)):
        done = subprocess.run([command, *args], capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == code, (args, done)
    with open(path, "rb") as copy, open(PAGE, "rb") as page:
        assert copy.read() == page.read()


def the_command_serves_the_page(_):
    command = os.path.join(os.path.dirname(PAGE), "stile-play")
    server = subprocess.Popen([command, "--serve", "0"], stdout=subprocess.PIPE, text=True)
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        address = server.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", address), address
        with direct.open(address, timeout=60) as answer, open(PAGE, "rb") as page:
            assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
            assert answer.read() == page.read()
        try:
            direct.open(address + "other", timeout=60)
            raise AssertionError("another path was served")
        except urllib.error.HTTPError as error:
            assert error.code == 404, error
        port = address.rsplit(":", 1)[1].strip("/")
        for text, code in (port, 69), ("-1", 64), ("65536", 64), ("x", 64):
            done = subprocess.run([command, "--serve", text], capture_output=True, text=True, check=False, timeout=60)
            assert done.returncode == code and done.stderr, (text, done)
    finally:
        server.terminate()
        server.wait()
        server.stdout.close()


def labels_are_readable(browser):
    """At each step, on a screen and on a phone: no label covers another one."""
    for width in 1280, 360:
        browser.resize(width, 780)
        for title in "Fencing: the holder", "Redlock: a node", "SETNX, 3", "PostgreSQL: a lock", "PostgreSQL: a conn":
            choose(browser, title)
            covered, too_wide = browser.run(COVERED)
            assert not covered and too_wide <= 0, (width, title, covered, too_wide)
    browser.resize(1280, 900)


def it_fits_a_phone(browser):
    choose(browser, "Redlock: a majority", 1.1)
    browser.resize(360, 780)
    browser.picture(os.path.join(OUT, "play-360.png"))
    width = browser.run("return document.documentElement.scrollWidth")
    assert width <= 360, width
    browser.resize(1280, 900)


def pictures_for_the_readme(browser):
    for name, title, at in ("redlock", "Redlock: a majority", 0.5009), ("fencing", "Fencing", 7.2):
        for dark in False, True:
            browser.resize(1000, 560)
            browser.darken(dark)
            choose(browser, title, at)
            browser.run("document.querySelector('.stage').scrollIntoView()")
            browser.picture(os.path.join(OUT, "play-%s%s.png" % (name, "-dark" if dark else "")))
    browser.darken(False)
    browser.resize(1280, 900)


CASES = [
    the_page_is_small_and_starts_at_once,
    a_story_is_the_same_in_webassembly_and_natively,
    a_seed_is_the_same_in_webassembly_and_natively,
    the_first_seeds_of_each_engine_are_the_same,
    redlock_is_told_step_by_step,
    fencing_is_told_step_by_step,
    the_guard_decides_whose_write_stays,
    redlock_can_be_broken,
    votes_and_validity_are_shown,
    a_message_can_be_held_and_let_go,
    a_message_can_be_lost,
    the_lease_and_its_renewal_can_be_chosen,
    raising_before_reading_matters,
    a_queue_of_zookeeper_is_told,
    a_lease_of_etcd_is_told,
    the_four_failures_of_setnx,
    a_lock_of_a_session_is_told,
    statements_of_a_session_are_shown,
    a_session_can_be_broken,
    a_session_that_is_cut_is_told,
    a_pooler_gives_one_lock_to_two,
    captions_of_what_was_changed_say_so,
    crowds_are_compared,
    fencing_can_be_broken,
    the_critique_of_redlock_can_be_replayed,
    every_step_of_every_story_has_a_caption,
    what_is_offered_can_be_done,
    locks_by_hand_and_of_the_library_exclude_each_other,
    the_space_bar_opens_the_text,
    a_wrong_line_is_named,
    the_command_writes_the_page,
    the_command_serves_the_page,
    labels_are_readable,
    it_fits_a_phone,
    pictures_for_the_readme,
]


run_pages(CASES)
