#!/usr/bin/env python3
# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""The last seat, and ten passengers: each of them has seen that it is free.

    seat.py postgres://user@host/database                       needs psycopg2

The remedy is no lock but a unique key: what must exist once is something that the database can refuse.
"""
import sys
import threading

import psycopg2

PASSENGERS = 10


def look_and_book(cursor, name, meet):
    cursor.execute("select count(*) from booking where flight = 'LH400' and seat = '12A'")
    free = cursor.fetchone()[0] == 0
    meet.wait()  # all others look, too
    if free:
        cursor.execute("insert into booking values ('LH400', '12A', %s)", (name,))
    return free


def book(cursor, name, meet):
    meet.wait()
    cursor.execute("insert into booking values ('LH400', '12A', %s) on conflict do nothing", (name,))
    return cursor.rowcount == 1  # 0: somebody else has it


def one_passenger(url, way, name, meet, boarding):
    connection = psycopg2.connect(url)
    with connection, connection.cursor() as cursor:
        if way(cursor, name, meet):
            boarding.append(name)
    connection.close()


def fly(url, way, key):
    """How many passengers hold the same seat, besides the first."""
    connection, boarding, meet = psycopg2.connect(url), [], threading.Barrier(PASSENGERS)
    with connection, connection.cursor() as cursor:
        cursor.execute("drop table if exists booking")
        cursor.execute("create table booking (flight text, seat text, name text%s)" % key)
    passengers = [threading.Thread(target=one_passenger, args=(url, way, "passenger %d" % i, meet, boarding))
                  for i in range(PASSENGERS)]
    for passenger in passengers:
        passenger.start()
    for passenger in passengers:
        passenger.join()
    with connection, connection.cursor() as cursor:
        cursor.execute("select count(*) from booking")
        booked = cursor.fetchone()[0]
    connection.close()
    if booked != len(boarding) or booked == 0:
        sys.exit("%d bookings and %d passengers" % (booked, len(boarding)))
    return booked - 1


print("%-34s %s" % ("", "without a seat"))
print("%-34s %14d" % ("look whether it is free, then book", fly(sys.argv[1], look_and_book, "")))
print("%-34s %14d" % ("primary key (flight, seat)", fly(sys.argv[1], book, ", primary key (flight, seat)")))
