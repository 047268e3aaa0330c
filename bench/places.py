# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""On few cores it decides everything whether both ends of a connection share one: so server and client
are pinned, once to two cores and once to one, where it matters."""
import contextlib
import os

from figures import NotMeasured

PLACES = (("two cores", 1), ("one core", 0))  # of the client; the server is on the first one


def cores():
    return sorted(os.sched_getaffinity(0))


def pinned(core, command):
    """The command on the nth core that we may use; None: wherever it likes."""
    if core is None:
        return list(map(str, command))
    if core >= len(cores()):
        raise NotMeasured("this figure needs one more core than we may use")
    return ["taskset", "-c", str(cores()[core]), *map(str, command)]


@contextlib.contextmanager
def staying_on(core):
    """Whatever is started meanwhile stays on that core, with all its threads and children."""
    before = os.sched_getaffinity(0)
    if core is not None:
        os.sched_setaffinity(0, {cores()[core]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
