"""A process with one client, which holds one lock while it asks for another."""
import contextlib
import os
import subprocess


class Keeper:
    def __init__(self, url):
        self.process = subprocess.Popen([os.environ["KEEP"], url], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def ask(self, name, wait_ms=0):
        self.process.stdin.write("%s\t%d\n" % (name, wait_ms))
        self.process.stdin.flush()

    def answer(self):
        """The status."""
        return self.process.stdout.readline().strip()

    def try_it(self, name):
        self.ask(name)
        return self.answer()

    def close(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
