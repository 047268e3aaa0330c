# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Grants with their times: never two at a time, and tokens in the order of grants."""


def read_grant(line):
    """(token, since, last), as contend and crowd print it."""
    token, since, last = map(int, line.split())
    return token, since, last


def check(grants, with_token=True):
    grants.sort(key=lambda grant: grant[1])
    for one, other in zip(grants, grants[1:]):
        assert one[2] <= other[1], "two holders: %r %r" % (one, other)
        assert not with_token or one[0] < other[0], "tokens: %r %r" % (one, other)
