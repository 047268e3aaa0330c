#!/bin/sh
# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
# One cache rebuilder: a page has expired, ten requests want it, and building it is expensive.
#
#     cache.sh HOST PORT                      of a Redis server; needs redis-cli
#
# Every request that misses builds the page. With a lock, one builds it; the others wait, look again and find it.
set -eu
requests=10
host=$1 port=$2
export STILE_ENGINE="redis://$host:$port"
redis() { redis-cli -h "$host" -p "$port" "$@"; }

# The expensive part. It counts how often it was called.
build() {
    redis INCR builds >/dev/null
    redis SET page "the page" EX 60 >/dev/null
}

# A request. All of them have looked before the first page is there: that is what makes a crowd.
without() {
    found=$(redis EXISTS page)
    [ "$(redis RPUSH looked x)" -lt $requests ] || redis RPUSH go $(seq $requests) >/dev/null
    redis BLPOP go 60 >/dev/null
    [ "$found" = 1 ] || build
}

# A request that takes turns with the others, and builds only what is still missing when it is its turn.
with() {
    [ "$(redis EXISTS page)" = 1 ] || stile run page -- "$0" "$host" "$port" look-again
}

# Ten of them at once; prints how many pages were built for nothing.
all() {
    redis DEL page builds looked go >/dev/null
    i=0
    while [ $i -lt $requests ]; do
        "$1" &
        i=$((i + 1))
    done
    wait
    [ "$(redis GET page)" = "the page" ]
    echo $(($(redis GET builds) - 1))
}

if [ "${3-}" = look-again ]; then
    [ "$(redis EXISTS page)" = 1 ] || build
    exit
fi
printf '%-34s %s\n' '' 'built for nothing'
printf '%-34s %17d\n' 'each request that misses builds' "$(all without)"
printf '%-34s %17d\n' 'stile run, then look again' "$(all with)"
