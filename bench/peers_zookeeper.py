"""kazoo's Lock at the same work: peers_zookeeper.py pair|handover|crowd HOSTS TIMES|MILLISECONDS

A line of JSON: p50_ns and rss_kib; of a crowd: per_s and acquired.
"""
import json
import multiprocessing
import re
import statistics
import sys
import time

from kazoo.client import KazooClient

CROWD = 8
PARKED_S = 0.05


def lock_at(hosts, name):
    client = KazooClient(hosts)
    client.start()
    return client.Lock("/kazoo/" + name)


def rss_kib():
    with open("/proc/self/status", encoding="ascii") as file:
        return int(re.search(r"VmRSS:\s+(\d+)", file.read()).group(1))


def told(took):
    return {"p50_ns": statistics.median(took), "rss_kib": rss_kib()}


def pair(hosts, times):
    lock, took = lock_at(hosts, "pair"), []
    for _ in range(times):
        start = time.monotonic_ns()
        lock.acquire()
        lock.release()
        took.append(time.monotonic_ns() - start)
    return told(took)


def take_when_told(hosts, pipe):
    lock = lock_at(hosts, "handover")
    while pipe.recv():
        pipe.send(None)
        lock.acquire()
        pipe.send(time.monotonic_ns())
        lock.release()


def handover(hosts, times):
    lock, took = lock_at(hosts, "handover"), []
    pipe, end = multiprocessing.Pipe()
    other = multiprocessing.Process(target=take_when_told, args=(hosts, end), daemon=True)
    other.start()
    for _ in range(times):
        lock.acquire()
        pipe.send(True)
        pipe.recv()
        time.sleep(PARKED_S)
        start = time.monotonic_ns()
        lock.release()
        took.append(pipe.recv() - start)
    pipe.send(False)
    other.join()
    return told(took)


def crowd_member(hosts, ready, go, stop, acquired):
    lock = lock_at(hosts, "crowd")
    ready.release()
    go.wait()
    while not stop.is_set():
        with lock:
            acquired.value += 1


def crowd(hosts, for_ms):
    ready, go, stop = (multiprocessing.Semaphore(0), multiprocessing.Event(),
                       multiprocessing.Event())
    counts = [multiprocessing.Value("l", 0, lock=False) for _ in range(CROWD)]
    members = [multiprocessing.Process(target=crowd_member, args=(hosts, ready, go, stop, count))
               for count in counts]
    for member in members:
        member.start()
    for _ in members:
        ready.acquire()
    start = time.monotonic_ns()
    go.set()
    time.sleep(for_ms / 1000)
    stop.set()
    took = time.monotonic_ns() - start
    inside = sum(count.value for count in counts)
    for member in members:
        member.join()
    return {"per_s": inside * 1e9 / took, "acquired": sum(count.value for count in counts)}


if __name__ == "__main__":
    print(json.dumps({"pair": pair, "handover": handover, "crowd": crowd}[sys.argv[1]](
        sys.argv[2], int(sys.argv[3]))))
