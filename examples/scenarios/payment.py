#!/usr/bin/env python3
# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Double payment under retries: an answer is lost, and the client sends its request again.

    payment.py postgres://user@host/database          needs psycopg2, and `stile setup` of the database

Five customers pay an order each. Each request is sent three times: twice at the same moment, by an impatient double
click, and once more because both answers were lost. All carry the key that the client has made for the order.
"""
import json
import sys
import threading

import psycopg2

CUSTOMERS = ["anna", "ben", "carl", "dora", "emil"]
KEY, AMOUNT = "order-17", 5  # two customers may choose the same key


def book(cursor, customer):
    cursor.execute("insert into payment (customer, amount) values (%s, %s) returning id", (customer, AMOUNT))
    return {"payment": cursor.fetchone()[0]}


def pay(connection, customer):
    with connection, connection.cursor() as cursor:
        return book(cursor, customer)


def pay_once(connection, customer):
    with connection, connection.cursor() as cursor:  # one transaction: the payment, the key and the result
        cursor.execute("select run, result from stile.once(%s, %s, scope => %s)", (KEY, str(AMOUNT), customer))
        run, result = cursor.fetchone()
        if run:
            result = book(cursor, customer)
            cursor.execute("select stile.once_done(%s, %s, scope => %s)", (KEY, json.dumps(result), customer))
        return result


def request(url, way, customer, answers):
    connection = psycopg2.connect(url)
    answers.append((customer, way(connection, customer)["payment"]))
    connection.close()


def day(url, way):
    """How many payments there are beyond one for each customer, and how many customers got different answers."""
    answers, connection = [], psycopg2.connect(url)
    with connection, connection.cursor() as cursor:
        cursor.execute("drop table if exists payment; create table payment (id serial, customer text, amount int)")
        cursor.execute("delete from stile.once_key where scope = any(%s)", (CUSTOMERS,))
    clicks = [threading.Thread(target=request, args=(url, way, customer, answers)) for customer in CUSTOMERS * 2]
    for click in clicks:
        click.start()
    for click in clicks:
        click.join()
    for customer in CUSTOMERS:
        request(url, way, customer, answers)
    with connection, connection.cursor() as cursor:
        cursor.execute("select count(*) from payment")
        paid = cursor.fetchone()[0]
    connection.close()
    return paid - len(CUSTOMERS), len(set(answers)) - len(CUSTOMERS)


print("%-34s %10s %17s" % ("", "paid again", "different answers"))
print("%-34s %10d %17d" % ("insert into payment", *day(sys.argv[1], pay)))
print("%-34s %10d %17d" % ("stile.once() in the transaction", *day(sys.argv[1], pay_once)))
