"""psycopg2 at the same work: peers_postgres.py pair|handover PORT TIMES, crowd PORT MILLISECONDS

A line of JSON: p50_ns, or per_s and least_to_most of 8 processes."""
import json
import multiprocessing
import statistics
import sys
import time

import psycopg2

TRY = "select pg_try_advisory_lock(hashtextextended('peer', 0))"
WAIT = "select pg_advisory_lock(hashtextextended('peer', 0))"
GIVE = "select pg_advisory_unlock(hashtextextended('peer', 0))"


def cursor_at(port):
    connection = psycopg2.connect(host="127.0.0.1", port=port, user="postgres", dbname="postgres")
    connection.autocommit = True
    return connection.cursor()


def pair(port, times):
    cursor, took = cursor_at(port), []
    for _ in range(times):
        start = time.monotonic_ns()
        cursor.execute(TRY)
        cursor.fetchone()
        cursor.execute(GIVE)
        cursor.fetchone()
        took.append(time.monotonic_ns() - start)
    return took


def take_when_told(port, pipe):
    cursor = cursor_at(port)
    while pipe.recv():
        pipe.send(None)
        cursor.execute(WAIT)
        pipe.send(time.monotonic_ns())
        cursor.execute(GIVE)


def handover(port, times):
    cursor, took = cursor_at(port), []
    pipe, end = multiprocessing.Pipe()
    other = multiprocessing.Process(target=take_when_told, args=(port, end), daemon=True)
    other.start()
    for _ in range(times):
        cursor.execute(WAIT)
        pipe.send(True)
        pipe.recv()
        time.sleep(0.05)
        start = time.monotonic_ns()
        cursor.execute(GIVE)
        took.append(pipe.recv() - start)
    pipe.send(False)
    other.join()
    return took


def take_and_give(port, start, stop, served):
    cursor, n = cursor_at(port), 0
    start.wait()
    while not stop.is_set():
        cursor.execute(WAIT)
        cursor.execute(GIVE)
        n += 1
    served.put(n)


def crowd(port, for_ms):
    start, stop = multiprocessing.Barrier(9), multiprocessing.Event()
    served = multiprocessing.Queue()
    for _ in range(8):
        multiprocessing.Process(target=take_and_give, args=(port, start, stop, served),
                                daemon=True).start()
    start.wait()
    time.sleep(for_ms / 1000)
    stop.set()
    counts = [served.get() for _ in range(8)]
    return {"per_s": sum(counts) * 1000 / for_ms, "least_to_most": min(counts) / max(counts)}


if __name__ == "__main__":
    work, given = sys.argv[1], [int(text) for text in sys.argv[2:]]
    if work == "crowd":
        print(json.dumps(crowd(*given)))
    else:
        took_ns = {"pair": pair, "handover": handover}[work](*given)
        print(json.dumps({"p50_ns": statistics.median(took_ns)}))
