"""psycopg2 at the same work: peers_postgres.py pair|handover PORT TIMES

A line of JSON: p50_ns."""
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


if __name__ == "__main__":
    result = {"pair": pair, "handover": handover}[sys.argv[1]](int(sys.argv[2]), int(sys.argv[3]))
    print(json.dumps({"p50_ns": statistics.median(result)}))
