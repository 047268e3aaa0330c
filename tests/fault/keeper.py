"""A process with one client, which holds one lock while it asks for another."""
import contextlib
import os
import subprocess


class Keeper:
    def __init__(self, url):
        self.process = subprocess.Popen([os.environ["KEEP"], url], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def try_it(self, name):
        """The status."""
        self.process.stdin.write(name + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def close(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
