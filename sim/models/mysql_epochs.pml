/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* MySQL's tokens: a number that a server counts in memory, above an epoch that is on disk
 * (src/engines/mysql/tokens.c, schema.sql, docs/guarantees.md).
 *
 * Two servers, one of which is writable; the other one follows it. A client takes the lock of its server, draws, and
 * adds the number to the base of the epoch. It has read that before or after the draw, or goes by an earlier reading of
 * the same session. A reading is good for a while; an epoch can be drawn from only after that while has passed since
 * the one before was replaced on disk.
 *
 * Always: a token is larger than all that were reported before it was drawn, and no token is reported twice.
 *
 * Assumed: a server that becomes writable again without a restart has everything that the other one has committed.
 * LACKS_DATA shows why: nothing on such a server says that another one has continued. And a dump is not loaded into a
 * server that has replaced the dump's epoch since its start: DUMP_OF_THIS_LIFE shows why.
 *
 * Broken variants: NO_CLOCK, NO_WAIT, ANY_SERVER, DRAWS_FIRST, BASE_IGNORED, REMEMBERS_LONGER, SECOND_REPEATS (with
 * LIFE_LOGGED), READS_OF_A_REPLICA, LACKS_DATA, DUMP_OF_THIS_LIFE. */
#ifndef CLIENTS
#define CLIENTS 2
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif
#ifndef EVENTS
#define EVENTS 2
#endif
#ifndef DUMPS
#define DUMPS 1
#endif
#ifndef SIZE
#define SIZE 1 /* tokens of an epoch, less one, until it gets more */
#endif
#define LIFE    24 /* numbers of a life: a server starts with another second */
#define SERVERS 2
#define NOBODY  255

byte base[SERVERS] = 1;   /* of the epoch on disk */
byte bound[SERVERS] = 1;  /* no token above it is reported */
byte row_base[SERVERS];   /* the row in memory; 0: there is none */
byte row_server[SERVERS];
byte row_first[SERVERS];
byte count[SERVERS];      /* UUID_SHORT() */
byte owner[SERVERS] = NOBODY;
byte beginner[SERVERS] = NOBODY;
byte serving;             /* the other one is read-only */
byte clock = 2;
bool runs;
byte highest;             /* token that was reported */
byte last[CLIENTS];
bool has_served[SERVERS]; /* since its start */
byte server_of[CLIENTS];
bool connected[CLIENTS];  /* its session has not ended */
bool fresh[CLIENTS];      /* what it has read may still be gone by */
bool aging[CLIENTS * SERVERS]; /* it was read before that server's last epoch was on disk */

byte kept_base, kept_bound, kept_row_base, kept_row_server, kept_row_first; /* in a dump or backup */

#define ME    _pid
#define at    server_of[ME]
#define OVER  (!connected[ME])
#define OTHER (1 - serving)
#ifdef ANY_SERVER
#define IS_MINE(s) true
#else
#define IS_MINE(s) (row_server[s] == s)
#endif
#define HAS_ROW(s) (row_base[s] == base[s] && IS_MINE(s))
#define HAS_ALL (base[OTHER] == base[serving] && bound[OTHER] == bound[serving])

#ifdef DUMP_OF_THIS_LIFE
#define MAY_BE_LOADED true
#else
#define MAY_BE_LOADED                                                                              \
    (kept_base == base[serving] || kept_row_base != kept_base || kept_row_server != serving ||     \
     kept_row_first / LIFE != count[serving] / LIFE)
#endif

inline forget_row(s)
{
    row_base[s] = 0;
    row_server[s] = 0;
    row_first[s] = 0
}

inline starts_again(s)
{
    connected[0] = connected[0] && server_of[0] != s;
    connected[1] = connected[1] && server_of[1] != s;
    has_served[s] = false;
    owner[s] = NOBODY;
    beginner[s] = NOBODY;
#ifdef SECOND_REPEATS
    count[s] = count[s] / LIFE * LIFE;
#else
    count[s] = count[s] / LIFE * LIFE + LIFE;
#endif
#ifndef LIFE_LOGGED
    forget_row(s)
#endif
}

inline sends()
{
    base[OTHER] = base[serving];
    bound[OTHER] = bound[serving];
    row_base[OTHER] = row_base[serving];
    row_server[OTHER] = row_server[serving];
    row_first[OTHER] = row_first[serving]
}

inline draw()
{
    count[at]++;
    drawn = count[at]
}

inline forget_epoch()
{
    known = 0;
    known_bound = 0;
    first = 0;
    fresh[ME] = false;
    aging[ME] = false;
    aging[CLIENTS + ME] = false
}

/* Of a server that is writable: or else the reading may lack what the other one has begun. */
inline read_epoch()
{
    if
#ifndef READS_OF_A_REPLICA
    :: at != serving -> known = 0
    :: at == serving && known ->
#else
    :: known ->
#endif
#ifndef BASE_IGNORED
        if
        :: base[at] == known -> known_bound = bound[at]
        :: else -> known = 0
        fi
#else
        known_bound = known + bound[at] - base[at]
#endif
#ifndef READS_OF_A_REPLICA
    :: at == serving && !known && HAS_ROW(at) ->
#else
    :: !known && HAS_ROW(at) ->
#endif
        known = base[at];
        known_bound = bound[at];
        first = row_first[at]
    :: else
    fi;
    aging[ME] = false;
    aging[CLIENTS + ME] = false;
    fresh[ME] = true;
    if
    :: known == 0 -> forget_epoch()
    :: else
    fi
}

inline commit_epoch(to_base, to_bound)
{
    base[at] = to_base;
    bound[at] = to_bound;
    if
    :: clock > bound[at]
    :: else -> clock = bound[at] + 1
    fi
}

/* stile_begin_epoch() */
inline begin_epoch()
{
    if
    :: atomic { !OVER && beginner[at] == NOBODY -> beginner[at] = ME }
    :: OVER -> goto ended
    fi;
    atomic {
        if
        :: OVER -> goto ended
        :: !OVER && at != serving -> beginner[at] = NOBODY; goto given_up
        :: else
        fi;
        draw();
        if
        :: HAS_ROW(at) && row_first[at] <= drawn && drawn / LIFE == row_first[at] / LIFE ->
            if
            :: drawn - row_first[at] >= bound[at] - base[at] ->
                commit_epoch(base[at], base[at] + drawn - row_first[at] + SIZE + 1)
            :: else
            fi;
            begun = 0
        :: else ->
            begun = bound[at] + 1;
#ifndef NO_CLOCK
            if
            :: clock > begun -> begun = clock
            :: else
            fi;
#endif
            commit_epoch(begun, begun + SIZE);
            aging[at * CLIENTS] = true;
            aging[at * CLIENTS + 1] = true
        fi
    }
    if
    :: begun ->
#ifndef NO_WAIT
        atomic { /* all readings from before the commit have become too old */
            if
            :: OVER -> goto ended
            :: else
            fi;
            fresh[0] = fresh[0] && !aging[at * CLIENTS];
            fresh[1] = fresh[1] && !aging[at * CLIENTS + 1];
            aging[at * CLIENTS] = false;
            aging[at * CLIENTS + 1] = false
        }
#endif
        atomic {
            if
            :: OVER -> goto ended
            :: else
            fi;
            count[at]++;
            row_base[at] = begun;
            row_server[at] = at;
            row_first[at] = count[at]
        }
    :: else
    fi;
    atomic {
        if
        :: OVER -> goto ended
        :: else -> beginner[at] = NOBODY
        fi
    }
}

active [CLIENTS] proctype client()
{
    byte rounds, tries, known, known_bound, first, drawn, before, begun, token;
    bool read_after;
    runs;
    do
    :: rounds < ROUNDS ->
        atomic { /* connects to the server that is writable, or stays where it is */
            rounds++;
            if
            :: OVER || at != serving ->
                at = serving;
                connected[ME] = true;
#ifndef REMEMBERS_LONGER
                forget_epoch()
#endif
            :: !OVER
            fi
        }
        if /* before the lock, at all, or after it */
        :: atomic { !OVER && known -> read_epoch(); read_after = (known == 0) }
        :: atomic { known && fresh[ME] -> read_after = false }
        :: read_after = true
        fi;
        atomic {
            if
            :: OVER -> goto ended
            :: !OVER && at != serving -> goto done /* nothing is granted */
            :: else
            fi;
#ifdef DRAWS_FIRST
            draw()
#endif
        }
        if /* it may wait here while the server becomes read-only */
        :: atomic {
            !OVER && owner[at] == NOBODY ->
            owner[at] = ME;
            before = highest;
#ifndef DRAWS_FIRST
            draw()
#endif
            }
        :: OVER -> goto ended
        fi;
judge:
        atomic {
            if
            :: OVER -> goto ended
            :: !OVER && read_after -> read_epoch()
            :: else
            fi;
            if
            :: known && drawn >= first && drawn - first <= known_bound - known && (read_after || fresh[ME]) ->
                token = known + drawn - first;
                assert(token > before);
                assert(token != last[1 - ME]);
                last[ME] = token;
                if
                :: token > highest -> highest = token
                :: else
                fi;
                goto given_up
            :: else
            fi;
            if
            :: tries == 2 || at != serving -> goto given_up
            :: else -> tries++
            fi
        }
        if
        :: !known || (drawn >= first && drawn - first > known_bound - known) ->
            forget_epoch();
            begin_epoch()
        :: else
        fi;
        atomic {
            if
            :: OVER -> goto ended
            :: !OVER && at != serving -> goto given_up
            :: else -> draw(); before = highest; read_after = true; goto judge
            fi
        }
given_up:
        atomic {
            if
            :: !OVER && owner[at] == ME -> owner[at] = NOBODY
            :: else
            fi
        }
        goto done;
ended:
done:
        atomic {
            tries = 0;
            drawn = 0;
            before = 0;
            begun = 0;
            token = 0;
            read_after = false
        }
    :: else -> break
    od
}

/* What happens to the servers, and by hand. */
active proctype world()
{
    byte events;
    byte dumps;
    atomic { /* servers that were started in the same second have the same numbers */
        runs = true;
        row_base[0] = 1;
        row_server[0] = 0;
        row_first[0] = 1;
        count[0] = 1;
        count[1] = 2;
        has_served[0] = true;
        sends()
    }
    do
    :: events < EVENTS ->
        atomic {
            events++;
            if
            :: starts_again(0)
            :: starts_again(1)
            :: sends() /* what is in the log so far arrives */
            :: forget_row(serving) /* deleted; others have read it before */
            :: dumps -> /* files of the server at rest are put back */
                starts_again(serving);
                base[serving] = kept_base;
                bound[serving] = kept_bound
            :: dumps && MAY_BE_LOADED -> /* the dump, into the running server */
                base[serving] = kept_base;
                bound[serving] = kept_bound;
                row_base[serving] = kept_row_base;
                row_server[serving] = kept_row_server;
                row_first[serving] = kept_row_first
#ifdef LACKS_DATA
            :: serving = OTHER
#else
            :: sends(); serving = OTHER
            :: HAS_ALL || !has_served[OTHER] -> serving = OTHER
#endif
            fi;
            has_served[serving] = true
        }
    :: dumps < DUMPS -> atomic {
            dumps++;
            kept_base = base[serving];
            kept_bound = bound[serving];
            kept_row_base = row_base[serving];
            kept_row_server = row_server[serving];
            kept_row_first = row_first[serving]
        }
    :: break
    od
}
