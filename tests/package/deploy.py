# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""The files of examples/deploy/ are accepted by the programs that read them, and their command lines run.

Usage: deploy.py SOURCE_ROOT BUILD_ROOT STILE
"""
import configparser
import glob
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "headers"))
from tap import Skip, run_cases  # noqa: E402

SOURCE = sys.argv[1]
STILE = os.path.abspath(sys.argv[3])
DEPLOY = os.path.join(SOURCE, "examples", "deploy")
PATIENCE_S = 60
TEMP = tempfile.mkdtemp(prefix="stile-deploy-")
BIN = os.path.join(TEMP, "bin")


def read(name):
    with open(os.path.join(DEPLOY, name), encoding="utf-8") as file:
        return file.read()


def prepare():
    """Programs with the names that the examples use."""
    os.mkdir(BIN)
    os.symlink(STILE, os.path.join(BIN, "stile"))
    for name in "report", "worker", "fetch":
        path = os.path.join(BIN, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\necho %s $STILE_TOKEN\n" % name)
        os.chmod(path, 0o755)


def here(text):
    """The same with our programs in the place of those that would be installed."""
    return text.replace("/usr/bin/stile", STILE).replace("/usr/local/bin/", BIN + "/")


def engine(name):
    folder = os.path.join(TEMP, name)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return "local:" + folder


def run(command, name, **env):
    """Runs it with next to no environment, as a daemon would."""
    clean = {"PATH": BIN + ":/usr/bin:/bin", "STILE_ENGINE": engine(name), **env}
    return subprocess.run(command, env=clean, cwd="/", stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=PATIENCE_S, check=False)


def unit(name):
    parser = configparser.RawConfigParser(strict=True)
    parser.optionxform = str
    parser.read_string(read(name))
    return parser


def exec_start(name):
    return shlex.split(here(unit(name)["Service"]["ExecStart"]))


def seconds(text):
    number, letter = re.fullmatch(r"(\d+)([smh])", text).groups()
    return int(number) * {"s": 1, "m": 60, "h": 3600}[letter]


def option(command, name):
    return seconds(command[command.index(name) + 1])


def units_are_valid():
    if not shutil.which("systemd-analyze"):
        raise Skip("no systemd-analyze")
    folder = os.path.join(TEMP, "units")
    os.mkdir(folder)
    paths = []
    for path in glob.glob(os.path.join(DEPLOY, "*.service")) + glob.glob(os.path.join(DEPLOY, "*.timer")):
        paths.append(os.path.join(folder, os.path.basename(path)))
        with open(paths[-1], "w", encoding="utf-8") as file:
            file.write(here(read(os.path.basename(path))))
    assert len(paths) == 3, paths
    done = run(["systemd-analyze", "verify", "--man=no", *paths], "units", SYSTEMD_LOG_LEVEL="warning")
    ours = [line for line in done.stderr.splitlines() if folder in line or "report" in line or "worker" in line]
    assert done.returncode == 0 and not ours, done.stderr


def calendar_is_valid():
    if not shutil.which("systemd-analyze"):
        raise Skip("no systemd-analyze")
    done = run(["systemd-analyze", "calendar", unit("report.timer")["Timer"]["OnCalendar"]], "units")
    assert done.returncode == 0, done.stderr


def report_runs_on_one_host():
    """A second host is turned away with a status that systemd takes for success."""
    command, service = exec_start("report.service"), unit("report.service")["Service"]
    first, second = run(command, "report"), run(command, "report")
    assert (first.returncode, first.stdout) == (0, "report 1\n"), first
    assert str(second.returncode) == service["SuccessExitStatus"] and not second.stdout, second


def worker_ends_when_it_is_stopped():
    command = exec_start("worker.service")
    command[command.index("--") + 1:] = ["sh", "-c", "echo runs; exec sleep 1000"]
    process = subprocess.Popen(command, env={"STILE_ENGINE": engine("worker")}, cwd="/",
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "runs\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=PATIENCE_S) == -signal.SIGTERM
    process.stdout.close()
    after = run(exec_start("worker.service"), "worker")
    assert (after.returncode, after.stdout) == (0, "worker 2\n"), after


def systemd_is_more_patient_than_the_grace():
    service, command = unit("worker.service")["Service"], exec_start("worker.service")
    assert seconds(service["TimeoutStopSec"]) > option(command, "--grace")
    assert option(command, "--grace") * 2 <= option(command, "--ttl")
    for name in "worker.service", "report.service":
        assert unit(name)["Service"].get("KillMode") == "mixed", name


FIELDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))


def check_time(text, low, high):
    """One of the first five fields of a crontab."""
    for part in text.split(","):
        span, first, last = re.fullmatch(r"(\*|(\d+)(?:-(\d+))?)(?:/[1-9]\d*)?", part).groups()
        for number in [] if span == "*" else filter(None, (first, last)):
            assert low <= int(number) <= high, text


def crontab_lines():
    """The lines with a time, as their fields."""
    for line in read("crontab").splitlines():
        if line.strip() and not line.startswith("#") and not re.match(r"\w+=", line):
            yield line.split(None, 6)


def crontab_is_valid():
    """cron ignores a file whose last line has no end, and takes a % for the end of the command."""
    assert read("crontab").endswith("\n")
    lines = list(crontab_lines())
    assert len(lines) == 2, lines
    for fields in lines:
        assert len(fields) == 7 and "%" not in fields[6], fields
        for text, (low, high) in zip(fields, FIELDS):
            check_time(text, low, high)
        assert re.fullmatch(r"[a-z_][a-z0-9_-]*", fields[5]), fields


def crontab_commands_run():
    for *_, command in crontab_lines():
        done = run(["/bin/sh", "-c", command], "crontab")
        assert (done.returncode, done.stdout.split()[1:]) == (0, ["1"]), done
        assert done.stderr == "", done
    turned_away = run(["/bin/sh", "-c", next(crontab_lines())[6]], "crontab")
    assert (turned_away.returncode, turned_away.stdout, turned_away.stderr) == (75, "", ""), turned_away


INSTRUCTIONS = "FROM COPY RUN USER WORKDIR STOPSIGNAL ENTRYPOINT CMD".split()


def instructions():
    text = re.sub(r"(?m)^#.*\n", "", read("Containerfile"))
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [line.split(None, 1) for line in lines if line.strip()]


def container_file_is_valid():
    names = [name for name, _ in instructions()]
    assert names[0] == "FROM" and set(names) <= set(INSTRUCTIONS), names
    last = dict(instructions())
    assert last["FROM"] == "debian:12-slim", last
    assert last["USER"] not in ("root", "0") and names.index("USER") < names.index("ENTRYPOINT")
    assert "useradd" in last["RUN"] and last["RUN"].split()[-1] == last["USER"], last
    assert run(["sh", "-n", "-c", last["RUN"]], "container").returncode == 0
    assert last["STOPSIGNAL"] == "SIGTERM"


def container_has_packages_of_ours():
    with open(os.path.join(SOURCE, "debian", "control"), encoding="utf-8") as file:
        packages = re.findall(r"(?m)^Package: (\S+)", file.read())
    *sources, _ = dict(instructions())["COPY"].split()
    for source in sources:
        name = re.fullmatch(r"build-deb/([\w-]+)_\*\.deb", source).group(1)
        assert name in packages, name


def container_runs_its_command():
    last = dict(instructions())
    entry, command = json.loads(here(last["ENTRYPOINT"])), json.loads(last["CMD"])
    assert command
    done = run([*entry, "worker"], "container")
    assert (done.returncode, done.stdout) == (0, "worker 1\n"), done


def conf_is_read():
    """No server is there: it is named in the error, so the file was understood."""
    folder = os.path.join(TEMP, "config")
    os.mkdir(folder)
    path = os.path.join(folder, "stile.conf")
    with open(path, "w", encoding="utf-8") as file:
        file.write(re.sub(r"//[^/\n]+/", "//127.0.0.1:1/", read("stile.conf")))
    os.chmod(path, 0o600)
    done = run([STILE, "show", "x"], "unused", STILE_ENGINE="", XDG_CONFIG_HOME=folder)
    if "engine not found" in done.stderr:
        raise Skip("the redis engine is not built")
    assert done.returncode == 69 and "127.0.0.1:1" in done.stderr, done


CASES = [
    units_are_valid,
    calendar_is_valid,
    report_runs_on_one_host,
    worker_ends_when_it_is_stopped,
    systemd_is_more_patient_than_the_grace,
    crontab_is_valid,
    crontab_commands_run,
    container_file_is_valid,
    container_has_packages_of_ours,
    container_runs_its_command,
    conf_is_read,
]


try:
    prepare()
    sys.exit(run_cases(CASES))
finally:
    shutil.rmtree(TEMP)
