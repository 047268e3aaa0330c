#!/bin/sh
# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
# Coarse and fine locks: five jobs on five accounts, and two transfers into the same account.
#
#     granularity.sh URL                      of any engine
#
# One lock for all accounts is safe and lets one job in at a time. One for each account lets all in. A lock that
# is too fine, of the paying account only, loses an update of the other one: take all names that are written to.
set -eu
export STILE_ENGINE="$1"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"

# A job: enters, looks how many are inside until all five are or it has looked $2 times, and leaves.
cat >job <<'END'
: >"inside-$1"
i=0
while n=$(find . -name 'inside-*' | wc -l) && [ "$n" -lt 5 ] && [ ! -e full ] && [ $i -lt "$2" ]; do
    i=$((i + 1))
    sleep 0.1
done
[ "$n" -lt 5 ] || : >full
echo "$n" >>seen
rm "inside-$1"
END

# jobs LOOKS NAME...: a job under each name; prints how many were inside at most.
jobs() {
    looks=$1 i=1
    shift
    rm -f seen full
    for name; do
        stile run "$name" -- sh job $i "$looks" &
        i=$((i + 1))
    done
    wait
    sort -n seen | tail -n 1
}

# Pays 1 to carl: reads, waits for the other one to read as well, up to $3 looks, and writes.
cat >transfer <<'END'
n=$(cat carl)
: >"read-$1"
i=0
until [ -e "read-$2" ] || [ $i -ge "$3" ]; do i=$((i + 1)); sleep 0.1; done
echo $((n + 1)) >carl
END

# transfers LOOKS [NAME]: anna and ben pay at the same time, each with a lock of their own and that of NAME; prints how
# many payments did not arrive.
transfers() {
    rm -f read-*
    echo 0 >carl
    stile run anna ${2-} -- sh transfer anna ben "$1" &
    stile run ben ${2-} -- sh transfer ben anna "$1" &
    wait
    echo $((2 - $(cat carl)))
}

printf '%-40s %d at a time\n' 'five jobs, one lock for all accounts' "$(jobs 3 all all all all all)"
printf '%-40s %d at a time\n' 'five jobs, a lock for each account' "$(jobs 600 1 2 3 4 5)"
printf '%-40s %d lost\n' 'two transfers, lock of the payer only' "$(transfers 600)"
printf '%-40s %d lost\n' 'two transfers, locks of both accounts' "$(transfers 3 carl)"
