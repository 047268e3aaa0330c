# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Manual, help and completion, checked against header and command.

Usage: house.py SOURCE_ROOT STILE
"""
import functools
import glob
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

from tap import run_cases

ROOT, COMMAND = sys.argv[1:3]
# Completion asks the command that was typed.
BESIDE = os.path.dirname(COMMAND) + ":" + os.environ["PATH"]


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


def run(*command, **env):
    return subprocess.run(command, env={**os.environ, **env}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False)


HEADER = read("include", "stile.h")
JOBS = read("include", "stile", "jobs.h")
PARTS = "".join(read("include", "stile", name)
                for name in sorted(os.listdir(os.path.join(ROOT, "include", "stile"))))
LINES = re.sub(r"(?m)^#(?:.*\\\n)*.*$", "", re.sub(r"/\*.*?\*/", "", HEADER + PARTS, flags=re.S))
DECLARED = set(re.findall(r"(?:STILE_API|static inline)[^;]*?\b(stile_\w+)\(", LINES))
STATUSES = re.findall(r'\bX\((\w+), "([^"]*)"\)', HEADER)
VERSION = re.search(r'#define STILE_VERSION +"([^"]*)"', HEADER).group(1)


def plain(roff):
    """The words of a manual page, without its fonts."""
    roff = re.sub(r"(?m)^\.[BIR]{1,2} ", "", roff)
    return re.sub(r"\\f.|\\%|\\&", "", roff).replace("\\-", "-").replace('"', "")


def manual_has_every_function():
    synopsis = read("man", "stile.3").split(".SH DESCRIPTION")[0]
    named = set(re.findall(r"\b(stile_\w+)\(", plain(synopsis)))
    assert named == DECLARED, sorted(named ^ DECLARED)


def manual_describes_every_function():
    text = read("man", "stile.3").split(".SH DESCRIPTION")[1]
    named = set(re.findall(r"\b(stile_\w+)\b", text))
    assert not DECLARED - named, sorted(DECLARED - named)


def manual_has_every_status_with_its_text():
    table = read("man", "stile.3").split(".SH RETURN VALUE")[1].split(".PP")[0]
    named = re.findall(r"(?m)^\.T[PQ].*\n\.B STILE_(\w+)\n(.*)$", table)
    assert named and named == STATUSES, set(named) ^ set(STATUSES)


def manual_is_of_this_version():
    for page in "stile.1", "stile-sim.1", "stile-play.1", "stile.3":
        assert '"stile %s"' % VERSION in read("man", page), page
    assert "version: '%s'" % VERSION in read("meson.build")
    assert "## " + VERSION in read("CHANGELOG.md")
    number = re.search(r"#define STILE_VERSION_NUM 0x(\w+)", HEADER).group(1)
    assert number == "".join("%02x" % int(part) for part in VERSION.split(".")), number


def manual_has_no_warnings():
    for page in sorted(glob.glob(os.path.join(ROOT, "man", "*.[1-8]"))):
        done = run("man", "-l", "--warnings=w", page, LC_ALL="C.UTF-8", MANWIDTH="80")
        assert done.returncode == 0 and not done.stderr, page + ": " + done.stderr
        wide = [line for line in done.stdout.splitlines() if len(line) > 80]
        assert len(done.stdout) > 1000 and not wide, (page, wide)


def all_verbs():
    """As main.c has them: run, ls, ... and "jobs add", ... and "crdt set add", ..."""
    names = re.findall(r"&verb_(\w+)", read("cli", "main.c"))
    assert len(names) >= 17, names
    return [name.replace("_", " ") for name in names]


# Verbs that are programs of their own, with options and a manual page of their own.
PROGRAMS = ["sim", "play"]


def verbs():
    return [verb for verb in all_verbs() if verb not in PROGRAMS]


def built_programs():
    tree = os.path.dirname(os.path.dirname(COMMAND))
    return [verb for verb in PROGRAMS if os.path.exists(os.path.join(tree, verb, "stile-" + verb))]


def verbs_with_help():
    return verbs() + built_programs()


def helped(*words):
    done = run(COMMAND, *words, "--help")
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout


OPTION = re.compile(r"^  (?:-(\w), |    )--([a-z-]+)(?: ([A-Z]+))?(?:  +|$)(.*)")


def options_of(*words):
    """{name: (letter, metavariable, default)} of a verb, in the order of its help."""
    rows = []
    for line in helped(*words).splitlines():
        found = OPTION.match(line)
        if found:
            rows.append(list(found.groups()))
        elif rows and line.startswith(" " * 20):
            rows[-1][3] += " " + line.strip()
        elif rows:
            break
    assert rows, words
    return {name: (letter, value, default_in(text)) for letter, name, value, text in rows}


def default_in(text):
    found = re.search(r"\(default: ([^)]*)\)", text)
    return found and found.group(1)


def all_options():
    """{key: (letter, metavariable, {verb: default})}: one that two verbs have differs in its default only,
    except those in TWICE."""
    found = {}
    for verb in verbs():
        for name, (letter, value, default) in options_of(*verb.split()).items():
            row = found.setdefault(key_of(name, value), (letter, value, {}))
            assert row[:2] == (letter, value), (verb, name, row)
            row[2][verb] = default
    return found


def default_for(verb, text):
    """Of a verb, from the manual's words for all: "10s; renew: as acquired". A group stands for its verbs."""
    if text is None:
        return None
    common, *others = text.split("; ")
    special = dict(other.split(": ", 1) for other in others)
    return special.get(verb, special.get(verb.split()[0], common))


# Options whose value means something else in another verb, and those verbs' metavariables.
TWICE = {"for": "GOAL"}


def key_of(name, value):
    """Two options of one name have two keys."""
    return name if TWICE.get(name, value) == value else "%s %s" % (name, value)


def words_of(roff):
    return re.sub(r" +(?=[,.;:)])", "", " ".join(plain(roff).split()))


def described_options(page="stile.1"):
    """The same from the manual, and what follows each."""
    section = read("man", page).split("\n.SH OPTIONS\n")[1].split("\n.SH ")[0]
    found, texts = {}, {}
    for entry in section.split("\n.TP\n")[1:]:
        head, text = entry.split("\n", 1)
        parsed = re.fullmatch(r"(?:-(\w), )?--([a-z-]+)(?: ([A-Z]+))?", words_of(head))
        assert parsed, head
        letter, name, value = parsed.groups()
        key = key_of(name, value)
        found[key], texts[key] = (letter, value, default_in(words_of(text))), text
    return found, texts


def help_fits_a_terminal():
    groups = {verb.split()[0] for verb in verbs() if " " in verb}
    for words in [[]] + [[group] for group in sorted(groups)] + [verb.split() for verb in verbs_with_help()]:
        wide = [line for line in helped(*words).splitlines() if len(line) > 80]
        assert not wide, (words, wide)


def help_has_every_verb():
    overview = re.findall(r"(?m)^  stile ((?:[a-z]+ )*)([a-z|]+) ", helped())
    named = [group + verb for group, words in overview for verb in words.split("|")]
    assert sorted(named) == sorted(all_verbs()), set(named) ^ set(all_verbs())


def help_has_usage_with_each_option():
    for verb in verbs_with_help():
        usage = helped(*verb.split()).split("\n\n")[0]
        named = re.findall(r"(?<=[ \[])(-\w|--[a-z-]+)(?: ([A-Z]+))?(?=[ \]])", usage)
        expected = [("-" + letter if letter else "--" + name, value or "")
                    for name, (letter, value, _) in options_of(*verb.split()).items() if name != "help"]
        assert named == expected, (verb, named, expected)


# Nothing is done instead if these are not given.
WITHOUT_DEFAULT = {"slots", "conflict-exit-code", "proclaim", "key", "rate"}


def help_has_every_default():
    for name, (_, value, defaults) in all_options().items():
        for verb, default in defaults.items():
            assert (default is not None) == (value is not None and name not in WITHOUT_DEFAULT), (verb, name)


def help_has_the_defaults_of_the_library():
    options = all_options()
    ttl = re.search(r"PROFILE_DEFAULT\] = \{(\d+)000 \*", read("src", "core", "retry.c")).group(1)
    for verb, default in options["ttl"][2].items():
        assert default.split(",")[0] == ("as acquired" if verb == "renew" else ttl + "s"), (verb, default)
    for name, field in ("lease", "lease_ms"), ("tries", "tries"), ("backoff", "backoff_ms"):
        comment = re.search(r"\b%s; .*\((.*)\) \*/" % field, JOBS).group(1)
        assert set(options[name][2].values()) == {comment.replace(" ", "")}, (name, comment)


def manual_has_the_options_of_the_command():
    described, _ = described_options()
    options = all_options()
    assert set(options) == set(described), set(options) ^ set(described)
    for name, (letter, value, defaults) in options.items():
        assert described[name][:2] == (letter, value), (name, described[name])
        differ = {verb: default for verb, default in defaults.items()
                  if default != default_for(verb, described[name][2])}
        assert not differ, (name, differ, described[name][2])
    for verb in verbs():
        mine = list(options_of(*verb.split()))
        assert mine == [name for name in described if name in mine], (verb, mine)


def manual_of_a_program_has_its_options():
    for verb in built_programs():
        described, _ = described_options("stile-%s.1" % verb)
        options = options_of(verb)
        assert list(described.items()) == list(options.items()), (described, options)
        assert all(default or not value or name in WITHOUT_DEFAULT
                   for name, (_, value, default) in options.items()), options


def manual_has_the_verbs_of_an_option():
    """Those that are named before its text; without any, it is said elsewhere."""
    for name, text in described_options()[1].items():
        found = re.match(r'\.BR (.*) :\n', text)
        if found:
            named = words_of(".BR " + found.group(1)).split(", ")
            accept = [verb for verb in verbs()
                      if name in [key_of(option, row[1]) for option, row in
                                  options_of(*verb.split()).items()]]
            assert sorted(named) == sorted(accept), (name, named, accept)


def manual_has_every_verb():
    page = plain(read("man", "stile.1"))
    synopsis, rest = page.split(".SH DESCRIPTION")
    for verb in all_verbs():
        assert re.search(r"(?m)^stile %s\b" % verb, synopsis), verb
        assert re.search(r"\bstile %s\b" % verb, rest), verb


def manual_explains_every_metavariable():
    named = {value for _, value, _ in all_options().values() if value}
    for verb in verbs():
        usage = helped(*verb.split()).split("\n\n")[0]
        named |= set(re.findall(r"(?<![\w$-])[A-Z]+\b", usage))
    section = read("man", "stile.1").split("\nIn this manual and in the help")[1].split("\n.SH ")[0]
    explained = re.findall(r"\b[A-Z]+\b", " ".join(re.findall(r"(?m)^\.IR? (.*)", section)))
    assert sorted(explained) == sorted(named), set(explained) ^ named


def manual_has_every_exit_status():
    codes = re.search(r"enum exit_code \{(.*?)\};", read("cli", "cli.h"), re.S).group(1)
    table = read("man", "stile.1").split("\n.SH EXIT STATUS\n")[1].split("\n.SH ")[0]
    named = [word for head in re.findall(r"(?m)^\.T[PQ].*\n(.*)", table)
             for word in re.findall(r"\d+", head)]
    assert named == ["0"] + re.findall(r"= (\d+)", codes), named


def manual_has_examples_that_work():
    section = read("man", "stile.1").split("\n.SH EXAMPLES\n")[1].split("\n.SH ")[0]
    examples = [plain(text.replace("\\(aq", "'").replace("\\(dq", '@').replace("\\e", "\\")
                      .replace('"', '@')).replace("@", '"')
                for text in re.findall(r"(?s)\.EX\n(.*?)\.EE", section)]
    assert len(examples) >= 6, examples
    with tempfile.TemporaryDirectory(prefix="stile-house-") as folder:
        for example in examples:
            assert re.search(r"\bstile ", example), example
            done = subprocess.run(["sh", "-ec", example], cwd=folder, stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, check=False,
                                  env={**os.environ, "PATH": BESIDE, "STILE_ENGINE": "local:" + folder + "/s"})
            assert done.returncode == 0 and done.stdout, (example, done.returncode, done.stderr)


def top_words():
    """What can follow `stile`."""
    return sorted({verb.split()[0] for verb in all_verbs()})


def options(verb):
    return sorted("--" + name for name in options_of(*verb.split()))


def complete_bash(*words, **env):
    """What bash would offer for the last of these words."""
    script = """
        source "$1"; shift
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        _stile "$1" "${COMP_WORDS[-1]}" "${COMP_WORDS[-2]}"
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    done = run("bash", "--norc", "-c", script, "bash", os.path.join(ROOT, "cli", "stile.bash"),
               COMMAND, *words, **env)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout.split()


def line_of(words, command="stile"):
    return shlex.join((command,) + words[:-1]) + " " + words[-1]


# Completes $LINE as soon as there is a prompt, and writes what is offered to $OFFERED.
ZSHRC = """
fpath=($FUNCTIONS $fpath)
autoload -Uz compinit && compinit -u -d $ZDOTDIR/dump
compadd() {
  if [[ ${@[1,(i)(-|--)]} != *-[OAD]* ]]; then
    local -a offered
    builtin compadd -A offered "$@"
    (($#offered)) && print -rl -- $offered >>$OFFERED
  fi
  builtin compadd "$@"
}
finish() { exit }
comppostfuncs=(finish)
zle-line-init() { BUFFER=$LINE; CURSOR=$#BUFFER; zle complete-word; exit }
zle -N zle-line-init
"""


@functools.cache
def zsh_folder():
    """With the completion in it, and the list of all others, which takes zsh a second to make."""
    folder = tempfile.TemporaryDirectory(prefix="stile-house-")
    with open(os.path.join(folder.name, ".zshrc"), "w", encoding="utf-8") as file:
        file.write(ZSHRC)
    shutil.copy(os.path.join(ROOT, "cli", "stile.zsh"), os.path.join(folder.name, "_stile"))
    return folder


def complete_zsh(*words, **env):
    """The same of zsh, which completes in a terminal only."""
    folder = zsh_folder().name
    primary, secondary = pty.openpty()
    with tempfile.NamedTemporaryFile("r", dir=folder, encoding="utf-8") as offered:
        shell = subprocess.Popen(
            ["zsh", "-d", "-i"], stdin=secondary, stdout=secondary, stderr=secondary,
            start_new_session=True,
            env={**os.environ, "PATH": BESIDE, "ZDOTDIR": folder, "FUNCTIONS": folder, "TERM": "dumb",
                 "OFFERED": offered.name, "LINE": line_of(words), **env})
        os.close(secondary)
        shown = read_to_end(primary)
        assert shell.wait() == 0, (words, shown)
        return sorted(set(offered.read().split()))


def read_to_end(terminal):
    shown = b""
    try:
        while True:
            part = os.read(terminal, 65536)
            shown += part
            if not part:
                break
    except OSError:  # the last process of the terminal is gone
        pass
    os.close(terminal)
    return shown


def complete_fish(*words, command="stile", **env):
    with tempfile.TemporaryDirectory(prefix="stile-house-") as home:
        done = run("fish", "--no-config", "-c", 'source $argv[1]; complete -C "$argv[2]"',
                   os.path.join(ROOT, "cli", "stile.fish"), line_of(words, command),
                   HOME=home, XDG_CONFIG_HOME=home, XDG_DATA_HOME=home, PATH=BESIDE, **env)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return [line.split("\t")[0] for line in done.stdout.splitlines()]


def offers_verbs_and_options(complete):
    words = sorted(top_words() + ["--engines", "--help", "--version"])
    assert sorted(complete("")) == words, complete("")
    assert complete("rel") == ["release"]
    for verb in verbs_with_help():
        offered = sorted(set(complete(*verb.split(), "--")))
        assert offered == options(verb), (verb, offered)
    assert complete("run", "--profile", "f") == ["financial"]
    assert complete("jobs", "ls", "--state", "cl") == ["claimed"]
    assert complete("advise", "--writes-to", "my") == ["mysql"]
    assert complete("guard", "sql", "--dialect", "my") == ["mysql"]
    for script in complete("guard", "lua", "--script", ""):
        assert run(COMMAND, "guard", "lua", "--script", script).returncode == 0, script
    assert len(complete("guard", "lua", "--script", "")) == 9
    assert complete("jobs", "re") == ["retry"]
    assert complete("crdt", "s") == ["set"]
    assert complete("crdt", "counter", "a") == ["add"]
    assert complete("run", "--wait", "5") == ["5m"]
    assert complete("sim", "--engine", "redl") == (["redlock"] if built_programs() else [])
    assert complete("run", "-E", "") == complete("run", "--slots", "") == []
    assert complete("run", "-x/;e echo ran >&2;s/", "--tr") == ["--try"]  # no part of a script
    assert complete("run", "-e", "lo") == complete("caps", "lo") == ["local:"]
    assert "true" in complete("run", "x", "--", "tru")


# A name that a shell would run, if it were not quoted.
ODD = "pay:$(echo>&2);`x`*"


def offers_names(complete):
    with tempfile.TemporaryDirectory(prefix="stile-house-") as folder:
        engine = "local:" + folder
        done = run(COMMAND, "run", "--hold-at-least", "1h", "order-17", "--", "true",
                   STILE_ENGINE=engine)
        assert done.returncode == 0, done.stderr
        assert complete("show", "or", STILE_ENGINE=engine) == ["order-17"]
        assert complete("show", "x", STILE_ENGINE=engine) == []
        done = run(COMMAND, "run", "--hold-at-least", "1h", ODD, "--", "true", STILE_ENGINE=engine)
        assert done.returncode == 0, done.stderr
        offered = complete("show", "pay", STILE_ENGINE=engine)
        assert [re.sub(r"\\(.)", r"\1", name) for name in offered] == [ODD], offered
        assert complete("show", "-e", engine, "or", STILE_ENGINE="local:/nowhere") == ["order-17"]


def bash_offers_verbs_and_options():
    offers_verbs_and_options(complete_bash)
    assert complete_bash("run", "--profile", "=", "f") == ["financial"]
    assert complete_bash("run", "--profile", "=") == ["default", "financial", "cache", "batch"]


def bash_offers_names():
    offers_names(complete_bash)


def zsh_offers_verbs_and_options():
    offers_verbs_and_options(complete_zsh)
    assert complete_zsh("run", "--profile=f") == ["financial"]


def zsh_offers_names():
    offers_names(complete_zsh)


def fish_offers_verbs_and_options():
    offers_verbs_and_options(complete_fish)
    assert complete_fish("run", "--profile=f") == ["--profile=financial"]
    assert complete_fish("run", "--", command="/nowhere/stile") == []


def fish_offers_names():
    offers_names(complete_fish)


CASES = [
    manual_has_every_function,
    manual_describes_every_function,
    manual_has_every_status_with_its_text,
    manual_is_of_this_version,
    manual_has_no_warnings,
    help_fits_a_terminal,
    help_has_every_verb,
    help_has_usage_with_each_option,
    help_has_every_default,
    help_has_the_defaults_of_the_library,
    manual_has_the_options_of_the_command,
    manual_of_a_program_has_its_options,
    manual_has_the_verbs_of_an_option,
    manual_has_every_verb,
    manual_explains_every_metavariable,
    manual_has_every_exit_status,
    manual_has_examples_that_work,
    bash_offers_verbs_and_options,
    bash_offers_names,
    zsh_offers_verbs_and_options,
    zsh_offers_names,
    fish_offers_verbs_and_options,
    fish_offers_names,
]


sys.exit(run_cases(CASES))
