# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""What the tests of MariaDB servers in trouble have in common."""
import json

from sql_kit import lost, on_servers_of, refused, token_of, use, wait_for
from mysql_server import MysqlServer

__all__ = ["BEFORE_EPOCHS", "findings", "lost", "on_server", "refused", "token_of", "use", "wait_for"]

on_server = on_servers_of(MysqlServer)

# What the release before there were epochs had instead of them; other tables are as now.
BEFORE_EPOCHS = """
delete from stile_version where version > 4;
drop table stile_epoch, stile_life;
drop procedure stile_begin_epoch;
drop procedure stile_use_holds;
drop procedure stile_make_tokens;
alter table stile_lock change last_token token bigint unsigned not null;
"""


def findings(t):
    done = t.stile("doctor", "--json")
    return {(found["severity"], found["id"]) for found in json.loads(done.stdout)["findings"]}
