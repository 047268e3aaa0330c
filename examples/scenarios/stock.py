#!/usr/bin/env python3
# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""The last unit in stock, and ten buyers at once: one wrong way, and four that sell it once.

    stock.py postgres://user@host/database        needs psycopg2, libstile.so.0, and `stile setup` of the database
"""
import ctypes
import sys
import threading

import psycopg2

BUYERS = 10


def read_then_write(connection, product, pause=lambda: None, read="select n from stock where id = %s"):
    with connection, connection.cursor() as cursor:  # one transaction
        cursor.execute(read, (product,))
        n = cursor.fetchone()[0]
        pause()  # in which all others read the same number
        if n > 0:
            cursor.execute("update stock set n = %s where id = %s", (n - 1, product))
        return n > 0


class Locked:
    """The same under a lock. stile is a C library: from Python, ctypes calls it."""

    def __init__(self, url):
        self.stile, self.client, self.error = ctypes.CDLL("libstile.so.0"), ctypes.c_void_p(), ctypes.create_string_buffer(256)
        assert self.stile.stile_client_open(ctypes.byref(self.client), url.encode(), None, self.error) == 0, self.error.raw[8:]

    def __call__(self, connection, product, _pause=None):
        sold = []
        body = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(
            lambda lock, data: sold.append(read_then_write(connection, product)) or 0)
        status = self.stile.stile_with(self.client, b"stock-%d" % product, None, body, None, None, self.error)
        assert status == 0, self.error.raw[8:]
        return sold[0]


def for_update(connection, product, _pause=None):
    return read_then_write(connection, product, read="select n from stock where id = %s for update")


def version(connection, product, pause=lambda: None):
    with connection, connection.cursor() as cursor:
        cursor.execute("select n, version from stock where id = %s", (product,))
        n, seen = cursor.fetchone()
        connection.commit()  # no transaction stays open
        pause()
        cursor.execute("update stock set n = %s, version = %s where id = %s and version = %s",
                       (n - (n > 0), seen + 1, product, seen))
    return n > 0 if cursor.rowcount == 1 else version(connection, product)  # again: another buyer was faster


def statement(connection, product, _pause=None):
    with connection, connection.cursor() as cursor:
        cursor.execute("update stock set n = n - 1 where id = %s and n > 0", (product,))
        return cursor.rowcount == 1


def sell(url, way):
    """How many buyers believe that the only unit is theirs."""
    connections, sold, meet = [psycopg2.connect(url) for _ in range(BUYERS)], [], threading.Barrier(BUYERS)
    with connections[0] as connection, connection.cursor() as cursor:
        cursor.execute("drop table if exists stock; create table stock (id int primary key, n int, version int default 0)")
        cursor.execute("insert into stock values (7, 1)")
    buyers = [threading.Thread(target=lambda c=c: sold.append(way(c, 7, meet.wait))) for c in connections]
    [buyer.start() for buyer in buyers], [buyer.join() for buyer in buyers], [c.close() for c in connections]
    return sum(sold)


if __name__ == "__main__":
    print("%-18s %16s" % ("", "sold, but missing"))
    for name, way in (("read, then write", read_then_write), ("a lock", Locked(sys.argv[1])), ("SELECT FOR UPDATE", for_update),
                      ("a version", version), ("one statement", statement)):
        print("%-18s %17d" % (name, sell(sys.argv[1], way) - 1), flush=True)
