"""Other clients of a database at the same work: PEER.py pair|handover PORT TIMES, PEER.py crowd PORT MS

A line of JSON: p50_ns, or per_s and least_to_most. A peer has cursor_at(port), and the statements TRY,
WAIT and GIVE."""
import json
import multiprocessing
import statistics
import sys
import time


def pair(peer, port, times):
    cursor, took = peer.cursor_at(port), []
    for _ in range(times):
        start = time.monotonic_ns()
        cursor.execute(peer.TRY)
        cursor.fetchone()
        cursor.execute(peer.GIVE)
        cursor.fetchone()
        took.append(time.monotonic_ns() - start)
    return took


def take_when_told(peer, port, pipe):
    cursor = peer.cursor_at(port)
    while pipe.recv():
        pipe.send(None)
        cursor.execute(peer.WAIT)
        pipe.send(time.monotonic_ns())
        cursor.execute(peer.GIVE)


def handover(peer, port, times):
    cursor, took = peer.cursor_at(port), []
    pipe, end = multiprocessing.Pipe()
    other = multiprocessing.Process(target=take_when_told, args=(peer, port, end), daemon=True)
    other.start()
    for _ in range(times):
        cursor.execute(peer.WAIT)
        pipe.send(True)
        pipe.recv()
        time.sleep(0.05)
        start = time.monotonic_ns()
        cursor.execute(peer.GIVE)
        took.append(pipe.recv() - start)
    pipe.send(False)
    other.join()
    return took


def take_and_give(peer, port, start, stop, served):
    cursor, n = peer.cursor_at(port), 0
    start.wait()
    while not stop.is_set():
        cursor.execute(peer.WAIT)
        cursor.execute(peer.GIVE)
        n += 1
    served.put(n)


def crowd(peer, port, for_ms):
    start, stop = multiprocessing.Barrier(9), multiprocessing.Event()
    served = multiprocessing.Queue()
    for _ in range(8):
        multiprocessing.Process(target=take_and_give, args=(peer, port, start, stop, served),
                                daemon=True).start()
    start.wait()
    time.sleep(for_ms / 1000)
    stop.set()
    counts = [served.get() for _ in range(8)]
    return {"per_s": sum(counts) * 1000 / for_ms, "least_to_most": min(counts) / max(counts)}


def run(peer):
    work, given = sys.argv[1], [int(text) for text in sys.argv[2:]]
    if work == "crowd":
        print(json.dumps(crowd(peer, *given)))
    else:
        took_ns = {"pair": pair, "handover": handover}[work](peer, *given)
        print(json.dumps({"p50_ns": statistics.median(took_ns)}))
