#!/bin/sh
# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
# A fence in PostgreSQL: a holder that was paused commits after its lease, and is refused.
#
#     fenced-postgres.sh postgres://user@host/database
#
# The lock may be on any engine; here it is local:. The guard is one statement, first in the transaction
# that writes, on tables that know nothing of locks. Needs psql, and the right to create a schema.
set -eu
url=${1:?usage: fenced-postgres.sh postgres://user@host/database}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export STILE_ENGINE="local:$dir" url

# Once: the guard, and a table of your own.
stile guard install "$url"
psql -Xq "$url" >/dev/null <<'END'
drop table if exists ledger;
create table ledger (id serial primary key, entry text);
-- Optional: refuse every write to this table from a transaction that has called no guard.
select stile.guard_required('ledger');
END

# Adds an entry: write TOKEN ISSUER ENTRY. BEGIN and the guard are one message, so the guard costs no round
# trip of its own.
cat > "$dir/write" <<'END'
psql -Xq -v ON_ERROR_STOP=1 -v token="$1" -v issuer="$2" -v entry="$3" "$url" >/dev/null <<'SQL'
begin \; select stile.guard('ledger', :token, :'issuer');
insert into ledger (entry) values (:'entry');
commit;
SQL
END

# The first holder works, and is paused with its next transaction prepared. --guard has raised the guard
# before the command started, so its predecessors were refused from then on.
early=$(stile run --guard "$url#ledger" ledger -- sh -c '
    sh "$0/write" "$STILE_TOKEN" "$STILE_ISSUER" "opening balance"
    echo "$STILE_TOKEN $STILE_ISSUER"' "$dir")

# Its lease ends, and another holder works: with a larger token.
stile run --guard "$url#ledger" ledger -- sh -c '
    sh "$0/write" "$STILE_TOKEN" "$STILE_ISSUER" "100 paid in"' "$dir"

# It continues, too late. psql exits with 3, and nothing of its transaction is left.
set -- $early
if sh "$dir/write" "$1" "$2" "overwritten"; then
    echo "the late write was accepted" >&2
    exit 1
fi

# A program that forgets the guard is refused, too.
if psql -Xq -v ON_ERROR_STOP=1 "$url" -c "insert into ledger (entry) values ('unguarded')"; then
    echo "the write without a guard was accepted" >&2
    exit 1
fi

stile guard show "$url" ledger
psql -XAtq "$url" -c 'select entry from ledger order by id'
