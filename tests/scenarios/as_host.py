#!/usr/bin/python3
# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a command as host N, whose clock says N * 70 minutes past midnight of the first of a month: off by, or late by,
up to most of a day.

Usage: as_host.py N CMD [ARG...], with $STILE_CLOCK_LIBRARY
"""
import datetime
import os
import struct
import sys
import tempfile
import time

MIDNIGHT = datetime.datetime(2030, 3, 1, tzinfo=datetime.timezone.utc).timestamp()
number, command = int(sys.argv[1]), sys.argv[2:]

with tempfile.NamedTemporaryFile(delete=False) as clock:
    clock.write(struct.pack("=q", int(MIDNIGHT + number * 70 * 60 - time.time())))
os.environ.update(LD_PRELOAD=os.environ["STILE_CLOCK_LIBRARY"], STILE_TEST_CLOCK=clock.name)
status = os.spawnvp(os.P_WAIT, command[0], command)
os.remove(clock.name)
sys.exit(status)
