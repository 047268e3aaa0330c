# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Packages that tools/deps installs leave no daemon running, whatever happens to it on the way.

Usage: daemons.py SOURCE_ROOT BUILD_ROOT

All of it happens in a mount namespace with empty directories where Debian's rules are, and with an
apt-get that asks the policy as Debian's own scripts do.
"""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "headers"))
from tap import run_cases  # noqa: E402

TOOL = os.path.join(sys.argv[1], "tools", "install-packages")
POLICY = "/usr/sbin/policy-rc.d"
WANTS = "/etc/systemd/system/multi-user.target.wants"
EMPTY = ["/usr/sbin", "/etc", "/var/lib/dpkg"]
PATIENCE_S = 60

APT_GET = """#!/bin/sh
echo "apt-get $*"
if [ -x %(policy)s ]; then
    %(policy)s redis-server start && echo "start: yes" || echo "start: no, $?"
else
    echo "start: yes, there is no policy"
fi
: >%(wants)s/redis-server.service
echo asked >"$WHERE/asked"
read -r line <"$WHERE/go"
"""
SYSTEMCTL = """#!/bin/sh
echo "$*" >>"$WHERE/systemctl"
rm -f "%(wants)s/$2"
"""


class Scene:
    """Two fifos: apt-get reports that it has asked, and goes on when it may."""

    def __init__(self):
        self.where = tempfile.mkdtemp(prefix="stile-daemons-")
        os.environ["WHERE"] = self.where
        for name in "asked", "go":
            os.mkfifo(os.path.join(self.where, name))
        for name, text in ("apt-get", APT_GET), ("systemctl", SYSTEMCTL):
            path = os.path.join(self.where, name)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text % {"policy": POLICY, "wants": WANTS})
            os.chmod(path, 0o755)
        os.makedirs(WANTS, exist_ok=True)
        for folder in "/usr/sbin", WANTS:
            for name in os.listdir(folder):
                os.unlink(os.path.join(folder, name))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.where)

    def start(self):
        return subprocess.Popen([TOOL, "redis-server"], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env={**os.environ, "PATH": self.where + ":/usr/bin:/bin"})

    def wait_until_asked(self):
        with open(os.path.join(self.where, "asked"), encoding="utf-8") as file:
            assert file.read() == "asked\n"

    def go_on(self):
        with open(os.path.join(self.where, "go"), "w", encoding="utf-8") as file:
            file.write("go\n")

    def run(self):
        tool = self.start()
        self.wait_until_asked()
        self.go_on()
        out, err = tool.communicate(timeout=PATIENCE_S)
        assert tool.returncode == 0, err
        return out, err


def daemon_is_not_started():
    with Scene() as scene:
        _, err = scene.run()
        assert "start: no, 101" in err, err
        assert "install --no-install-recommends redis-server" in err, err
        assert os.listdir("/usr/sbin") == [], os.listdir("/usr/sbin")


def daemon_is_not_enabled():
    with Scene() as scene:
        open(os.path.join(WANTS, "ssh.service"), "w", encoding="utf-8").close()
        out, _ = scene.run()
        assert out == "installed, but neither started nor enabled at boot: redis-server\n", out
        assert os.listdir(WANTS) == ["ssh.service"], os.listdir(WANTS)


def policy_of_others_stays():
    for status, answer in (0, "yes"), (101, "no, 101"):
        with Scene() as scene:
            with open(POLICY, "w", encoding="utf-8") as file:
                file.write("#!/bin/sh\nexit %d\n" % status)
            os.chmod(POLICY, 0o755)
            before = os.stat(POLICY)
            _, err = scene.run()
            assert "start: " + answer in err, err
            after = os.stat(POLICY)
            assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
            assert os.listdir("/usr/sbin") == ["policy-rc.d"]


def link_of_others_stays():
    with Scene() as scene:
        os.symlink("/nowhere", POLICY)
        scene.run()
        assert os.readlink(POLICY) == "/nowhere"


def process_of(tool):
    """The script itself: flock(1) waits for it."""
    with open("/proc/%d/task/%d/children" % (tool.pid, tool.pid), encoding="utf-8") as file:
        return int(file.read().split()[0])


def policy_left_by_a_kill_forbids_nothing_and_is_removed():
    with Scene() as scene:
        tool = scene.start()
        scene.wait_until_asked()
        os.kill(process_of(tool), signal.SIGKILL)
        scene.go_on()
        tool.communicate(timeout=PATIENCE_S)
        assert tool.returncode != 0
        assert subprocess.run([POLICY, "redis-server", "start"], check=False).returncode == 0
        _, err = scene.run()
        assert "start: no, 101" in err, err
        assert os.listdir("/usr/sbin") == [], os.listdir("/usr/sbin")


def policy_stays_until_apt_has_ended():
    with Scene() as scene:
        tool = scene.start()
        scene.wait_until_asked()
        os.kill(process_of(tool), signal.SIGTERM)
        assert os.path.exists(POLICY)
        scene.go_on()
        tool.communicate(timeout=PATIENCE_S)
        assert tool.returncode == 1, tool.returncode
        assert os.listdir("/usr/sbin") == [], os.listdir("/usr/sbin")


def second_run_waits_for_the_first():
    """Otherwise the first to end would take the policy away from the second."""
    with Scene() as scene:
        tools = [scene.start(), scene.start()]
        for _ in tools:
            scene.wait_until_asked()
            assert os.path.exists(POLICY)
            scene.go_on()
        for tool in tools:
            _, err = tool.communicate(timeout=PATIENCE_S)
            assert "start: no, 101" in err, err
        assert os.listdir("/usr/sbin") == [], os.listdir("/usr/sbin")


CASES = [
    daemon_is_not_started,
    daemon_is_not_enabled,
    policy_of_others_stays,
    link_of_others_stays,
    policy_left_by_a_kill_forbids_nothing_and_is_removed,
    policy_stays_until_apt_has_ended,
    second_run_waits_for_the_first,
]


def enter_namespace():
    """Runs this file again, where nothing of the machine can be changed."""
    mounts = "".join("mount -t tmpfs none %s && " % folder for folder in EMPTY)
    unshare = ["unshare", "--mount"] + ([] if os.geteuid() == 0 else ["--map-root-user"])
    probe = subprocess.run([*unshare, "true"], capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        print("1..0 # SKIP no mount namespaces here: " + probe.stderr.strip())
        return 0
    return subprocess.run([*unshare, "sh", "-c", mounts + 'exec "$@"', "sh", sys.executable,
                           *sys.argv, "inside"], stdin=subprocess.DEVNULL, check=False).returncode


if sys.argv[3:] == ["inside"]:
    assert all(map(os.path.ismount, EMPTY)), "these cases delete what is there"
    sys.exit(run_cases(CASES))
sys.exit(enter_namespace())
