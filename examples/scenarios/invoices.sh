#!/bin/sh
# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
# Monthly invoices by cron, on twenty hosts, so that they are sent even if some hosts are down.
#
#     invoices.sh URL                         of any engine
#
# Their clocks differ. When it is the first of the month by the clock of the last host, the job of the first host is long
# over, and its lock is free: every host sends the invoices again. `stile once --slot 1d` adds the day, by the host's own
# clock, to the key, and a day has one run.
set -eu
export STILE_ENGINE="$1"
hosts=20
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export sent="$dir/sent"

# The job. It prints what it has done, for cron to mail.
job='echo x >>"$sent"; echo "412 invoices sent"'

# host N CMD...: cron on host N runs CMD. $AS_HOST may be a program that runs it with another clock for each N.
host() {
    number=$1
    shift
    if [ -n "${AS_HOST-}" ]; then
        "$AS_HOST" "$number" "$@"
    else
        "$@"
    fi
}

with_lock() { host "$1" stile run --try invoices -- sh -c "$job"; }
with_once() { host "$1" stile once --slot 1d invoices -- sh -c "$job"; }

# All hosts, one after the other, in the order of their clocks; prints how often it was sent too many times.
month() {
    : >"$sent"
    i=1
    while [ $i -le $hosts ]; do
        [ "$("$1" $i)" = "412 invoices sent" ]
        i=$((i + 1))
    done
    echo $(($(wc -l <"$sent") - 1))
}

# The slot must not end while we count.
[ $((86400 - $(date +%s) % 86400)) -gt 60 ] || sleep 60

printf '%-30s %s\n' '' 'sent again'
printf '%-30s %10d\n' 'stile run --try invoices' "$(month with_lock)"
printf '%-30s %10d\n' 'stile once --slot 1d invoices' "$(month with_once)"
