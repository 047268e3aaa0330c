# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Chromium without a screen, driven through WebDriver: Debian's chromium and chromium-driver.

    with Browser() as browser:
        browser.open(path)
        browser.run("return document.title")

It has a new profile, loads nothing over the network, and keeps what the page prints to its console.
"""
import base64
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--disable-dev-shm-usage", "--force-device-scale-factor=1", "--hide-scrollbars"]
PATIENCE_S = 120

# What the keyboard sends for a key.
KEYS = {"left": "\ue012", "right": "\ue014", "home": "\ue011", "end": "\ue010", "down": "\ue00f",
        "up": "\ue00e", "space": " ", "tab": "\ue004"}


class Browser:
    def __init__(self, width=1280, height=900):
        self.size = width, height

    def __enter__(self):
        self.profile = tempfile.mkdtemp(prefix="stile-browser-")
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE,
                                       stderr=subprocess.DEVNULL, text=True)
        try:
            self.base = "http://127.0.0.1:%d" % self.read_port()
            options = {"args": FLAGS + ["--user-data-dir=" + self.profile,
                                        "--window-size=%d,%d" % self.size]}
            binary = shutil.which("chromium")
            if binary:
                options["binary"] = binary
            session = self.call("POST", "/session", {"capabilities": {"alwaysMatch": {
                "timeouts": {"script": 1000 * PATIENCE_S}, "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}})
            self.base += "/session/" + session["sessionId"]
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_):
        try:
            self.call("DELETE", "")
        finally:
            self.end()

    def end(self):
        self.driver.terminate()
        self.driver.wait(PATIENCE_S)
        self.driver.stdout.close()
        shutil.rmtree(self.profile, ignore_errors=True)

    def read_port(self):
        """The driver chooses a free port and prints it."""
        for line in self.driver.stdout:
            found = re.search(r"started successfully on port (\d+)", line)
            if found:
                return int(found.group(1))
        raise AssertionError("chromedriver has ended at once")

    def call(self, method, path, body=None):
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self.base + path, data=data, method=method,
                                         headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()[:2000]) from error

    def open(self, path):
        self.call("POST", "/url", {"url": "file://" + os.path.abspath(path)})

    def run(self, script, *args):
        return self.call("POST", "/execute/sync", {"script": script, "args": list(args)})

    def devtools(self, command, **params):
        return self.call("POST", "/goog/cdp/execute", {"cmd": command, "params": params})

    def resize(self, width, height):
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height,
                      deviceScaleFactor=1, mobile=width < 600)

    def darken(self, dark):
        self.devtools("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def press(self, key):
        self.call("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": [
            {"type": "keyDown", "value": KEYS[key]}, {"type": "keyUp", "value": KEYS[key]}]}]})

    def text(self, element_id):
        return self.run("return document.getElementById(arguments[0]).textContent", element_id)

    def click(self, element_id):
        self.run("document.getElementById(arguments[0]).click()", element_id)

    def picture(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("GET", "/screenshot")))

    def complaints(self):
        """What the browser has to say about the page since the last call."""
        return [entry["message"] for entry in self.call("POST", "/se/log", {"type": "browser"})]


def run_pages(cases):
    """Runs the cases in one browser, which must have nothing to complain about, and exits."""
    failed = False
    print("1..%d" % len(cases))
    with Browser() as browser:
        for number, case in enumerate(cases, 1):
            try:
                case(browser)
                complaints = browser.complaints()
                assert not complaints, complaints
                print("ok %d - %s" % (number, case.__name__), flush=True)
            except AssertionError as error:
                failed = True
                print("not ok %d - %s" % (number, case.__name__), flush=True)
                print("# " + str(error)[:3000].replace("\n", "\n# "), flush=True)
    sys.exit(failed)
