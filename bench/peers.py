# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Other clients at the same work: PEER.py pair|handover PLACE TIMES, PEER.py crowd PLACE MILLISECONDS

A line of JSON: p50_ns and rss_kib; of a crowd: per_s, least_to_most and acquired. A peer has
lock_at(place), which makes a lock with a connection of its own: acquire() waits, and release().
attempt(), if there is one, is what takes it without waiting.
"""
import json
import multiprocessing
import re
import statistics
import sys
import time

CROWD = 8


def pair(lock_at, place, times):
    lock, took = lock_at(place), []
    take = getattr(lock, "attempt", lock.acquire)
    for _ in range(times):
        start = time.monotonic_ns()
        take()
        lock.release()
        took.append(time.monotonic_ns() - start)
    return took


def take_when_told(lock_at, place, pipe):
    lock = lock_at(place)
    while pipe.recv():
        pipe.send(None)
        lock.acquire()
        pipe.send(time.monotonic_ns())
        lock.release()


def handover(lock_at, place, times, parked_s):
    lock, took = lock_at(place), []
    pipe, end = multiprocessing.Pipe()
    other = multiprocessing.Process(target=take_when_told, args=(lock_at, place, end), daemon=True)
    other.start()
    for _ in range(times):
        lock.acquire()
        pipe.send(True)
        pipe.recv()
        time.sleep(parked_s())
        start = time.monotonic_ns()
        lock.release()
        took.append(pipe.recv() - start)
    pipe.send(False)
    other.join()
    return took


def take_and_give(lock_at, place, start, stop, served):
    lock, n = lock_at(place), 0
    start.wait()
    while not stop.is_set():
        lock.acquire()
        lock.release()
        n += 1
    served.put(n)


def crowd(lock_at, place, for_ms):
    start, stop = multiprocessing.Barrier(CROWD + 1), multiprocessing.Event()
    served = multiprocessing.Queue()
    for _ in range(CROWD):
        multiprocessing.Process(target=take_and_give, args=(lock_at, place, start, stop, served),
                                daemon=True).start()
    start.wait()
    time.sleep(for_ms / 1000)
    stop.set()
    counts = [served.get() for _ in range(CROWD)]
    return {"per_s": sum(counts) * 1000 / for_ms, "least_to_most": min(counts) / max(counts),
            "acquired": sum(counts)}


def rss_kib():
    with open("/proc/self/status", encoding="ascii") as file:
        return int(re.search(r"VmRSS:\s+(\d+)", file.read()).group(1))


def run(lock_at, parked_s=lambda: 0.05):
    """parked_s(): how long a waiter waits before it gets it from another."""
    work, place, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if work == "crowd":
        print(json.dumps(crowd(lock_at, place, count)))
        return
    took = pair(lock_at, place, count) if work == "pair" else handover(lock_at, place, count,
                                                                       parked_s)
    print(json.dumps({"p50_ns": statistics.median(took), "rss_kib": rss_kib()}))
