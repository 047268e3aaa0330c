# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Grants with their times: never two at a time, and tokens in the order of grants."""


def read_grant(line):
    """(token, since, last, lost), as contend and crowd print it; contend leaves out the last one."""
    token, since, last, *lost = map(int, line.split())
    return token, since, last, lost == [1]


def check(grants, with_token=True, may_revoke=False):
    """may_revoke: the server may have ended the lease of a holder, which was told so."""
    grants.sort(key=lambda grant: grant[1])
    for one, other in zip(grants, grants[1:]):
        assert one[2] <= other[1] or (may_revoke and one[3]), "two holders: %r %r" % (one, other)
        assert not with_token or one[0] < other[0], "tokens: %r %r" % (one, other)
