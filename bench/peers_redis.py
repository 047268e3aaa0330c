"""redis-py's Lock at the same work: peers_redis.py pair|handover PORT TIMES

A line of JSON: p50_ns and rss_kib.
"""
import json
import multiprocessing
import random
import re
import statistics
import sys
import time

import redis


def lock_at(port):
    return redis.Redis(port=port).lock("peer", timeout=30)


def pair(port, times):
    lock, took = lock_at(port), []
    for _ in range(times):
        start = time.monotonic_ns()
        lock.acquire()
        lock.release()
        took.append(time.monotonic_ns() - start)
    return took


def take_when_told(port, pipe):
    lock = lock_at(port)
    while pipe.recv():
        pipe.send(None)
        lock.acquire()
        pipe.send(time.monotonic_ns())
        lock.release()


def handover(port, times):
    lock, took = lock_at(port), []
    pipe, end = multiprocessing.Pipe()
    other = multiprocessing.Process(target=take_when_told, args=(port, end), daemon=True)
    other.start()
    for _ in range(times):
        lock.acquire()
        pipe.send(True)
        pipe.recv()
        time.sleep(random.uniform(0.02, 0.12))  # any time of its pauses of 100 ms
        start = time.monotonic_ns()
        lock.release()
        took.append(pipe.recv() - start)
    pipe.send(False)
    other.join()
    return took


def main():
    took = {"pair": pair, "handover": handover}[sys.argv[1]](int(sys.argv[2]), int(sys.argv[3]))
    with open("/proc/self/status", encoding="ascii") as file:
        rss = int(re.search(r"VmRSS:\s+(\d+)", file.read()).group(1))
    print(json.dumps({"p50_ns": statistics.median(took), "rss_kib": rss}))


if __name__ == "__main__":
    main()
