#!/bin/sh
# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
# Deadlock by lock order: one transfer goes from anna to ben, another from ben to anna.
#
#     deadlock.sh URL                         of any engine
#
# Each takes the lock of the account that pays, and then the other. Both have one, and would wait for the other for
# ever, if one did not give up. `stile run anna ben` and `stile run ben anna` take both in the same order.
set -eu
export STILE_ENGINE="$1"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"

# With the first lock: wait until the other transfer has its first lock, and take the second. second FROM TO WAIT
cat >second <<'END'
: >"has-$1"
until [ -e "has-$2" ]; do sleep 0.01; done
exec stile run -q --wait "$3" "$2" -- sh -c ': >"done-$0"' "$1"
END
one_by_one() { stile run "$1" -- sh second "$1" "$2" "$3" || [ $? = 75 ]; }
all_at_once() { stile run "$1" "$2" -- sh -c ': >"done-$0"' "$1"; }

# Both transfers in this way; prints how many were not done.
both() {
    rm -f has-* done-*
    "$1" anna ben 1s &
    "$1" ben anna 1h &
    wait
    echo $((2 - $(find . -name 'done-*' | wc -l)))
}

printf '%-26s %s\n' '' 'not done'
printf '%-26s %8d\n' 'one lock, then the other' "$(both one_by_one)"
printf '%-26s %8d\n' 'stile run anna ben' "$(both all_at_once)"
