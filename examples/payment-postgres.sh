#!/bin/sh
# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
# A payment that is made once, however often its request is repeated.
#
#     payment-postgres.sh postgres://user@host/database
#
# The payment and its result are stored in one commit. Needs psql, and the right to create a schema.
set -eu
url=${1:?usage: payment-postgres.sh postgres://user@host/database}

# Once: the functions, and a table of your own.
stile setup "$url"
psql -Xq -v ON_ERROR_STOP=1 "$url" <<'END'
set client_min_messages = warning;
drop table if exists payment;
create table payment (id serial primary key, customer text, amount int);
delete from stile.once_key where scope in ('ann', 'bob');
END

# What a service without once does: pay_again CUSTOMER AMOUNT
pay_again() {
    psql -Xq -v ON_ERROR_STOP=1 -v customer="$1" -v amount="$2" "$url" <<'END'
insert into payment (customer, amount) values (:'customer', :amount);
END
}

# With once: pay CUSTOMER KEY AMOUNT. The client of the service chooses the key and sends the same one with
# each retry. Two customers may choose the same: the scope keeps them apart. The fingerprint is the request
# itself, so that a key is not used for two different ones.
pay() {
    psql -XqAt -v ON_ERROR_STOP=1 -v customer="$1" -v key="$2" -v amount="$3" "$url" <<'END'
begin \; select run, result from stile.once(:'key', :'amount', scope => :'customer') \gset
\if :run
    insert into payment (customer, amount) values (:'customer', :amount)
        returning jsonb_build_object('payment', id, 'amount', amount) as result \gset
    select from stile.once_done(:'key', :'result', scope => :'customer');
\endif
commit;
\echo :result
END
}

# The answer to a request is lost, and the client sends it again.
pay_again ann 5
pay_again ann 5
echo "without once: $(psql -XAtq "$url" -c 'select count(*) from payment') payments"
psql -Xq "$url" -c 'truncate payment restart identity'

# Twenty retries at the same time: one pays, and all get its result.
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    pay ann order-17 5 &
done | sort | uniq -c
echo "with once: $(psql -XAtq "$url" -c 'select count(*) from payment') payment"

# Another customer with the same key.
pay bob order-17 7

# The same key for another amount is refused with SG005. psql exits with 3.
if pay ann order-17 500; then
    echo "two requests had one key" >&2
    exit 1
fi
psql -XAtq "$url" -c 'select customer, amount from payment order by id'
