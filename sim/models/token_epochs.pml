/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens from a counter that a crash forgets and an epoch that is on disk (src/engines/postgres/schema.sql,
 * docs/guarantees.md).
 *
 * A name's lock is the server's and ends with every session when the server does. A client looks whether there
 * is a counter, takes the lock, and draws; or it relies on what the same session has seen before. The row of the counter is gone after a crash, a promotion and a restore; then
 * the first caller begins an epoch: it is on disk before others see the row. The clock passes each epoch before the next
 * one begins.
 *
 * Always: no token of a name is reported that is not larger than every one before.
 *
 * With ONE_SERVER there are only crashes, and NO_CLOCK is right too: on one disk, nothing depends on the clock.
 *
 * Broken variants: VISIBLE_EARLY, LIFE_LOGGED, NO_CLOCK, ENDS_IGNORED, DRAWS_FIRST, EPOCH_IN_ROW, BELIEVES_RESTORED,
 * REMEMBERS_LONGER. */
#ifndef CLIENTS
#define CLIENTS 2
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif
#ifndef ENDS
#define ENDS 2
#endif
#ifndef NAMES
#define NAMES 1
#endif
#ifndef CLEARED
#define CLEARED 1
#endif
#define SIZE    3 /* an epoch has two tokens: e * SIZE + 1 and + 2 */
#define NOBODY  255

byte disk[2];          /* the epoch on the disk of the primary and of its standby */
byte backup;           /* the one in a backup */
byte kept_life, kept_count; /* a row and a counter that were dumped */
byte serving;          /* which of the two is the primary */
byte clock = 1;
byte life;             /* the row: its tokens are below this; 0: there is none */
byte count;            /* the counter */
byte generation;       /* sessions of an earlier one have ended */
byte owner[NAMES] = NOBODY; /* of a name's lock */
byte beginner = NOBODY; /* of the lock of the epoch's row */
byte highest[NAMES];   /* token that was reported */

inline sessions_end()
{
    generation++;
    owner[0] = NOBODY;
    owner[NAMES - 1] = NOBODY;
    beginner = NOBODY
}

inline wipe()
{
#ifndef LIFE_LOGGED
    life = 0;
#endif
    if
    :: count = 0
    :: count > 0 -> count-- /* a logged sequence forgets some */
    fi
}

#define NAME (_pid % NAMES)
#define OVER (generation != mine)
#if defined(ENDS_IGNORED) || defined(EPOCH_IN_ROW)
#define IS_GOOD(row) (row != 0)
#else
#define IS_GOOD(row) (row != 0 && drawn < row && drawn + SIZE > row)
#endif

inline draw()
{
    count++;
    drawn = count
}

inline begin_epoch()
{
    epoch = disk[serving] + 1;
    if
    :: count / SIZE + 1 > epoch -> epoch = count / SIZE + 1
    :: else
    fi;
#ifndef NO_CLOCK
    if
    :: clock > epoch -> epoch = clock
    :: else
    fi;
#endif
    if
    :: clock > epoch
    :: else -> clock = epoch + 1
    fi;
    count = epoch * SIZE;
    draw()
}

active [CLIENTS] proctype client()
{
    byte mine, seen, remembered, drawn, epoch, rounds;
    do
    :: rounds < ROUNDS ->
        rounds++;
        atomic {
            if
#ifndef REMEMBERS_LONGER
            :: remembered != 0 && mine == generation -> seen = remembered
#else
            :: remembered != 0 -> seen = remembered
#endif
            :: seen = life
            fi;
            mine = generation;
            remembered = seen;
#ifdef DRAWS_FIRST
            draw()
#endif
        }
        if
        :: atomic { !OVER && owner[NAME] == NOBODY -> owner[NAME] = _pid }
        :: OVER -> goto ended
        fi;
        atomic {
            if
            :: OVER -> goto ended
            :: else
            fi;
#ifndef DRAWS_FIRST
            draw();
#endif
            if
            :: IS_GOOD(seen) -> goto report
            :: else
            fi
        }
        if
        :: atomic { !OVER && beginner == NOBODY -> beginner = _pid }
        :: OVER -> goto ended
        fi;
        atomic {
            if
            :: OVER -> goto ended
            :: else
            fi;
            draw();
            seen = life;
            if
            :: IS_GOOD(seen) -> beginner = NOBODY; goto report
            :: else
            fi;
            begin_epoch();
#ifdef VISIBLE_EARLY
            seen = (epoch + 1) * SIZE;
            life = seen
#endif
        }
        atomic {
            if
            :: OVER -> goto ended
            :: else
            fi;
            disk[serving] = epoch
        }
        atomic {
            if
            :: OVER -> goto ended
            :: else
            fi;
            seen = (epoch + 1) * SIZE;
            life = seen;
            beginner = NOBODY
        }
report:
        atomic {
            if
            :: OVER -> goto ended
            :: else
            fi;
#ifdef EPOCH_IN_ROW
            drawn = seen - SIZE + drawn % SIZE;
#endif
            assert(drawn > highest[NAME]);
            highest[NAME] = drawn
        }
        atomic {
            if
            :: OVER
            :: else -> owner[NAME] = NOBODY
            fi
        }
ended:
        skip
    :: else -> break
    od
}

/* What happens to the servers, and by hand. */
active proctype world()
{
    byte ends, cleared;
    do
    :: ends < ENDS ->
        atomic {
            ends++;
            if
            :: true /* a crash, or a stop: an orderly one leaves the row, but not its time */
#ifndef ONE_SERVER
            :: serving == 0 -> serving = 1 /* promoted, with what had arrived there */
            :: disk[serving] = backup      /* restored */
#endif
            fi;
            sessions_end();
            wipe();
#ifdef BELIEVES_RESTORED
            if
            :: life = kept_life; count = kept_count
            :: true
            fi
#endif
        }
#ifndef ONE_SERVER
    :: serving == 0 && disk[1] != disk[0] -> disk[1] = disk[0]
    :: backup != disk[serving] -> atomic { backup = disk[serving]; kept_life = life; kept_count = count }
#endif
    :: cleared < CLEARED -> atomic { beginner == NOBODY -> cleared++; life = 0 } /* the row was deleted */
    :: break
    od
}
