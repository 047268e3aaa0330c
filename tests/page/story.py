# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""The page of `stile sim --story` in a browser, compared with the same seed's printed trace.

Usage: story.py STILE_SIM DIRECTORY    pictures and pages go to DIRECTORY
"""
import json
import os
import re
import subprocess
import sys

from browser import run_pages

SIM, OUT = sys.argv[1:3]
RUNS = ("redis", "9"), ("redlock", "3"), ("etcd", "5"), ("sentinel", "7")
PAGE_MAX = 4 << 20

# Moves the slider to a step, as a reader does.
GO = """
const slider = document.getElementById("slider");
slider.value = arguments[0];
slider.dispatchEvent(new Event("input"));
return document.getElementById("caption").textContent;
"""
# The captions of all steps at which clients see something, and of every ninth.
CAPTIONS = """
const slider = document.getElementById("slider"), caption = document.getElementById("caption");
const captions = [];
for (const [i, step] of window.stilePage.run.steps.entries()) {
  if (step.weight < 2 && i % 9 !== 0) continue;
  slider.value = i;
  slider.dispatchEvent(new Event("input"));
  captions.push(caption.textContent);
}
return captions;
"""
# The rows of one kind, from the data that the page shows.
ROWS = """
return JSON.parse(document.getElementById("run").textContent).rows.filter((row) => row[0] === arguments[0]);
"""


def simulate(*args, expected=0):
    done = subprocess.run([SIM, *args], capture_output=True, text=True, check=False)
    assert done.returncode == expected, (args, done.returncode, done.stdout + done.stderr)
    return done.stdout


def page_of(engine, seed):
    return os.path.join(OUT, "story-%s-%s.html" % (engine, seed))


def write_pages():
    for engine, seed in RUNS:
        simulate("--engine", engine, "--seed", seed, "--story", page_of(engine, seed))


def step_count(browser):
    return int(browser.run("return document.getElementById('slider').max")) + 1


# ---- cases ----

def a_page_is_one_file_that_loads_nothing(_):
    for engine, seed in RUNS:
        with open(page_of(engine, seed), encoding="utf-8") as file:
            text = file.read()
        assert len(text) < PAGE_MAX, len(text)
        assert "default-src 'none'" in text
        links = set(re.findall(r"\b(?:https?:)?//[\w.]+\.\w+", text)) - {"http://www.w3.org"}
        assert not links and "@run@" not in text and "@script@" not in text, links


def a_page_has_the_trace_that_is_printed(browser):
    """Every line, with its time, to the nanosecond."""
    for engine, seed in RUNS:
        browser.open(page_of(engine, seed))
        lines = ["%d.%09d %s" % (*divmod(row[1], 10**9), row[2]) for row in browser.run(ROWS, "line")]
        printed = simulate("--engine", engine, "--seed", seed, "--trace").splitlines()
        assert lines == printed[:-1] and len(lines) > 500, (engine, len(lines), len(printed))
        # The store's part of the trace, once more from the history.
        writes = ["%s: token %s is %s" % (row[3]["name"], row[3]["token"], row[3]["outcome"])
                  for row in browser.run(ROWS, "told") if row[3]["kind"] == "wrote"]
        assert writes == [line.split(" ", 1)[1] for line in printed if " store of " in line]
        total = printed[-1]
        assert browser.text("footer").endswith("Trace %s." % total.split("trace ")[1].rstrip())
        figures = re.search(r"(\d+) grants, (\d+) losses, (\d+) late", total).groups()
        verdict = browser.text("verdict")
        assert tuple(re.findall(r"(\d+) (?:grants?|loss(?:es)?|late writes?)\b", verdict)) == figures, verdict
        promised = json.loads(browser.run("return JSON.stringify([...window.stilePage.run.promised])"))
        assert verdict.startswith("Every rule holds: " if "overlap" in promised else "Exclusion was not promised here"), verdict


def every_message_ends_once_or_is_under_way(browser):
    for engine, seed in RUNS:
        browser.open(page_of(engine, seed))
        sent = [row[2] for row in browser.run(ROWS, "sent")]
        ends = [row[2] for kind in ("came", "lost") for row in browser.run(ROWS, kind)]
        assert len(sent) == len(set(sent)) and len(ends) == len(set(ends)) and set(ends) <= set(sent)
        assert len(ends) > 0.95 * len(sent) > 300, (engine, len(ends), len(sent))


def every_step_has_a_caption(browser):
    """In sentences, and without what a reader should not see. Each refusal is in one."""
    for engine, seed in RUNS:
        browser.open(page_of(engine, seed))
        captions = browser.run(CAPTIONS)
        for text in captions:
            assert re.fullmatch(r"\S.*[.?]", text), (engine, text)
            assert not re.search(r"undefined|null|NaN|Infinity|[0-9a-f]{40}|\x1f", text), text
        refused = sum(row[3].get("outcome") == "refused" for row in browser.run(ROWS, "told"))
        assert sum(text.count("refuses the write") for text in captions) == refused, engine


def the_page_reports_each_grant(browser):
    """Its holder and token are in the caption, and in the table of what holds now."""
    engine, seed = RUNS[1]
    browser.open(page_of(engine, seed))
    browser.run("""const grain = document.getElementById("grain");
                   grain.value = "told"; grain.dispatchEvent(new Event("change"));""")
    grants = [row for row in browser.run(ROWS, "told") if row[3]["kind"] == "granted"]
    assert len(grants) >= 10
    browser.press("home")
    seen = []
    for _ in range(400):
        caption = browser.text("caption")
        found = re.search(r"(c\d+) is granted (\w+) with token (\d+);", caption)
        if found:
            seen.append(found.group(1, 3))
            assert re.search("%s%s%s" % found.group(2, 1, 3), browser.text("now")), browser.text("now")
            lanes = browser.run("return document.querySelector('#diagram svg').getAttribute('aria-label')")
            assert "%s: holds" % found.group(1) in lanes, lanes
        if len(seen) == 10:
            break
        browser.press("right")
    assert seen == [(row[3]["client"], row[3]["token"]) for row in grants[:10]], seen


def keys_move_through_the_run(browser):
    browser.open(page_of(*RUNS[0]))
    last = step_count(browser)

    def place():
        return int(re.match(r"step (\d+) of", browser.text("place")).group(1))

    assert place() == 1
    for key, expected in (("right", 2), ("right", 3), ("left", 2), ("down", 12), ("up", 2),
                          ("end", last), ("right", last), ("home", 1), ("left", 1)):
        browser.press(key)
        assert place() == expected, (key, place(), expected)
    assert browser.run("return document.getElementById('slider').getAttribute('aria-valuetext')").startswith("step 1,")


def it_plays(browser):
    """Frames pass by themselves; a test waits for a step, not for a time."""
    browser.open(page_of(*RUNS[0]))
    browser.run("document.getElementById('speed').value = '2500'")
    browser.press("space")
    assert browser.text("play") == "Stop"
    moved = browser.call("POST", "/execute/async", {"script": """
        const done = arguments[0], end = performance.now() + 60000;
        const look = () => Number(document.getElementById("slider").value) > 20 ? done(true)
          : performance.now() > end ? done(false) : requestAnimationFrame(look);
        look();""", "args": []})
    assert moved
    browser.press("space")
    assert browser.text("play") == "Play"


def a_broken_rule_is_shown_first(browser):
    """A run that holds, with a verdict that says otherwise: the real ones are in the sources' past."""
    with open(page_of(*RUNS[1]), encoding="utf-8") as file:
        head, rest = file.read().split('<script id="run" type="application/json">')
        data, tail = rest.split("</script>", 1)
    run = json.loads(data)
    events = [row[2] for row in run["rows"] if row[0] == "told" and row[3]["kind"] == "granted"][:2]
    run["verdict"].update(holds=False, rule="overlap", events=events,
                          sentence="c1 was granted <b>x</b> too early.")
    path = os.path.join(OUT, "story-broken.html")
    with open(path, "w", encoding="utf-8") as file:
        file.write(head + '<script id="run" type="application/json">' +
                   json.dumps(run).replace("<", "\\u003c") + "</script>" + tail)
    browser.open(path)
    assert browser.text("verdict") == "Rule broken: overlap. c1 was granted <b>x</b> too early."
    assert "is granted" in browser.text("caption")
    assert browser.run("return document.querySelectorAll('.witness').length") >= 1
    buttons = browser.run("return [...document.querySelectorAll('.witnesses button')].map((b) => b.textContent)")
    assert len(buttons) == 2 and all("granted" in text for text in buttons), buttons
    before = browser.text("place")
    browser.run("document.querySelector('.witnesses button').click()")
    assert browser.text("place") != before and "is granted" in browser.text("caption")
    assert "broken" in browser.run("return document.querySelector('.rules .broken').textContent")


def it_fits_a_phone_and_follows_the_dark(browser):
    browser.open(page_of(*RUNS[1]))
    for width, height, dark in (1280, 1300, False), (1280, 1300, True), (360, 780, False), (360, 780, True):
        browser.resize(width, height)
        browser.darken(dark)
        browser.run(GO, 1910)
        wide = browser.run("return document.documentElement.scrollWidth")
        assert wide <= width, (wide, width)
        paper = browser.run("return getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", paper)[:3])) < 200) == dark, paper
        browser.picture(os.path.join(OUT, "story-%d%s.png" % (width, "-dark" if dark else "")))
    browser.resize(1280, 900)
    browser.darken(False)


def every_control_has_a_name(browser):
    browser.open(page_of(*RUNS[0]))
    nameless = browser.run("""
        return [...document.querySelectorAll("button, input, select")].filter((one) =>
          !(one.getAttribute("aria-label") || one.labels?.length || one.textContent.trim()))
          .map((one) => one.id);""")
    assert not nameless, nameless
    assert browser.run("return document.documentElement.lang") == "en"
    assert browser.run("return document.getElementById('caption').getAttribute('aria-live')") == "polite"


def seeds_that_hold_write_nothing(_):
    path = os.path.join(OUT, "story-none.html")
    simulate("--engine", "redis", "--seeds", "2", "--story", path)
    assert not os.path.exists(path)
    done = subprocess.run([SIM, "--engine", "redis", "--seed", "1", "--story", "/dev/full"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 74 and "/dev/full: No space" in done.stderr, done


CASES = [
    a_page_is_one_file_that_loads_nothing,
    a_page_has_the_trace_that_is_printed,
    every_message_ends_once_or_is_under_way,
    every_step_has_a_caption,
    the_page_reports_each_grant,
    keys_move_through_the_run,
    it_plays,
    a_broken_rule_is_shown_first,
    it_fits_a_phone_and_follows_the_dark,
    every_control_has_a_name,
    seeds_that_hold_write_nothing,
]


write_pages()
run_pages(CASES)
