/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fenced Redlock without a clock: tokens are unique, and they grow.
 *
 * There is no time in this model. A key may expire at any moment, a request or an answer may be
 * lost or come however late, a node may lose all that it knows. So nothing is said about how long a
 * grant is valid: two clients that believe to hold the lock at once are possible here, as in any
 * Redlock whose clocks go wrong or whose holder is stopped. Checked is what holds all the same:
 *   - no token is granted twice;
 *   - an attempt that began after a grant was decided gets a larger token;
 *   - a store that refuses tokens smaller than one it has seen never takes two writers' word under
 *     one token.
 *
 * `check.py` beside this file has the bounds with which this and each broken variant is run;
 * `check.py --list` names them, `check.py NAME` runs one and, where it breaks, prints how. By hand:
 *     spin -DKEYS -DCLIENTS=3 -DROUNDS=1 -a fenced_redlock.pml
 *     cc -O2 -DSAFETY -DNOREDUCE -o pan pan.c && ./pan
 *     spin -DKEYS -DCLIENTS=3 -DROUNDS=1 -t -B fenced_redlock.pml    (after an error: the way there)
 *
 * What is simpler than the protocol, and why nothing is lost by it:
 *   - Answers. A client decides at any moment, on any of the nodes' answers so far: the others were
 *     lost or are late. Requests are carried out at any moment after the attempt began, more than
 *     once, and also when it is long decided or given up.
 *   - Withdrawal and release. A node then drops the key, which it may do at any moment anyway.
 *   - Without -DKEYS every request finds its key: a late enough attempt finds that the key of
 *     every other has expired. That allows more than the protocol does, and has fewer states.
 */

#ifndef NODES
#define NODES 3 /* or 5 */
#endif
#ifndef CLIENTS
#define CLIENTS 2
#endif
#ifndef ROUNDS
#define ROUNDS 2 /* attempts of each client, one after the other */
#endif
#ifndef START
#define START 0 /* the token that was granted last, before all this; every client knows it */
#endif
#ifndef OTHERS
#define OTHERS 0 /* so often a grant of another name raises a node's highest token */
#endif
#ifndef FORGETS
#define FORGETS 0 /* so often a node loses everything */
#endif
#ifndef ADOPTIONS
#define ADOPTIONS 0 /* so often somebody sets out to take such nodes back */
#endif
#ifndef FOLLOWS
#define FOLLOWS 0 /* so often a node goes to a later epoch without being adopted */
#endif

#define ATTEMPTS   (CLIENTS * ROUNDS)
#define MAJORITY   (NODES / 2 + 1)
#define MAX(x, y)  ((x) > (y) -> (x) : (y))

#if NODES == 3
#define EACH_NODE(step)  :: step(0) :: step(1) :: step(2)
#define SUM(f, x)        (f(x, 0) + f(x, 1) + f(x, 2))
#else
#define EACH_NODE(step)  :: step(0) :: step(1) :: step(2) :: step(3) :: step(4)
#define SUM(f, x)        (f(x, 0) + f(x, 1) + f(x, 2) + f(x, 3) + f(x, 4))
#endif

/* -DCUT: much is lost on the way, always the same. Attempt 0 reaches the first nodes only, the
 * others node 0 and the last ones; of five nodes the first adoption reaches node 0 alone. What is
 * refuted so is refuted, and is found soon. */
#ifdef CUT
#define REACHES(a, n)  ((a) == 0 -> (n) < MAJORITY : (n) == 0 || (n) >= MAJORITY)
#define ADOPTS(k, n)   (NODES == 3 || (k) > 0 || (n) == 0)
#define FORGETFUL(n)   ((n) == NODES - 1 || (n) == 0 && (NODES == 3 || forgets > 0))
#else
#define REACHES(a, n)  true
#define ADOPTS(k, n)   true
#define FORGETFUL(n)   (forgets > 0 || (n) == NODES - 1) /* they are alike: call it the last one */
#endif

/* A node's group: nothing, the mark of an adoption, or an epoch. */
#define EMPTY            0
#define FIRST_EPOCH      1
#define MARK(k)          (64 + (k))
#define IS_EPOCH(group)  ((group) != EMPTY && (group) < 64)

typedef Node {
    byte key;     /* 1 + the attempt that has it; 0: free */
    byte fence;   /* of the name; 0: expired, or never written */
    byte highest; /* the largest token ever written to any fence here */
    byte group
};
Node node[NODES];

#define IDLE     0
#define ASKING   1 /* phase 1 */
#define VOTING   2 /* phase 2 */
#define GRANTED  3
#define OVER     4 /* given up */

typedef Attempt {
    byte stage;
    byte group;      /* the epoch under which it asks; other votes don't count */
    byte before;     /* the largest token granted when it began */
    byte guess;      /* the token that it offers in phase 1 already; 0: none */
    byte token;      /* that of phase 2; 0: not chosen yet */
    byte votes;      /* a bit for each node that has accepted the token */
    byte seen[NODES] /* 1 + the fence that phase 1 has read there; 0: no answer */
};
Attempt attempt[ATTEMPTS];
#define A attempt[a]

byte largest = START;      /* token granted so far */
byte newest = FIRST_EPOCH; /* epoch that anybody has heard of */
byte forgets, others, adoptions, follows;
hidden byte i;

/* ---- the rules, and what is left of them in the broken variants ---- */

#ifdef FENCE_READS_ZERO /* a fence key that has expired counts for nothing */
#define READ(n)       (node[n].fence)
#define CAN_EXPIRE(n) (node[n].fence != 0)
#else
#define READ(n)       (node[n].fence != 0 -> node[n].fence : node[n].highest)
#define CAN_EXPIRE(n) (node[n].fence != 0 && node[n].fence < node[n].highest) /* else all is one */
#endif

#ifdef NO_CONDITION /* phase 2 writes whatever it is given */
#define ACCEPTS(n, t)  true
#else
#define ACCEPTS(n, t)  (READ(n) < (t))
#endif

#ifdef NO_MAJORITY /* one vote less will do */
#define ENOUGH  (MAJORITY - 1)
#else
#define ENOUGH  MAJORITY
#endif

#ifdef COUNT_FORGOTTEN /* a node that has lost its name is as good as any */
#define COUNTS(n, a)  (REACHES(a, n) && (node[n].group == A.group || node[n].group == EMPTY))
#else
#define COUNTS(n, a)  (REACHES(a, n) && node[n].group == A.group)
#endif

#ifdef NO_MARK /* adoption writes to a node without a group, whenever that has lost it */
#define MARKED(k)  EMPTY
#else
#define MARKED(k)  MARK(k)
#endif

#ifdef SAME_EPOCH /* adoption leaves the epoch as it is */
#define NEW_EPOCH(seen)  (seen)
#else
#ifdef NUMBERED_EPOCH /* the largest number seen + 1: two adoptions may come to the same one */
#define NEW_EPOCH(seen)  ((seen) + 1)
#else
#define NEW_EPOCH(seen)  (newest + 1) /* it is like no other */
#endif
#endif

#ifdef FOLLOWS_BACK /* a node is led to an epoch that is older than its own */
#define TOWARDS           - 1
#define CAN_GO_TO(epoch)  ((epoch) >= FIRST_EPOCH)
#else
#define TOWARDS           + 1
#define CAN_GO_TO(epoch)  ((epoch) <= newest)
#endif

#ifdef KEYS
#define FREE_FOR(n, a)  (node[n].key == 0 || node[n].key == a + 1)
#define HAS_KEY(n, a)   (node[n].key == a + 1)
#define SET_KEY(n, to)  node[n].key = to
#else
#define FREE_FOR(n, a)  true
#define HAS_KEY(n, a)   true
#define SET_KEY(n, to)  skip
#endif

#ifdef FENCE_READS_ZERO
#define FIX_FENCE(n)  skip
#else
#define FIX_FENCE(n)  node[n].fence = READ(n)
#endif

#define WRITE_FENCE(n, t) \
    node[n].fence = t; \
    node[n].highest = MAX(node[n].highest, t)

/* ---- what nodes do for an attempt ---- */

/* Phase 1: take the key; report the fence, or accept the guess at once. What was read where a fence had
 * expired becomes the name's own fence: grants of other names do not raise it then. */
inline claim_at(n)
{
    d_step { A.stage == ASKING && COUNTS(n, a) && FREE_FOR(n, a) ->
        SET_KEY(n, a + 1);
        if
        :: A.guess > READ(n) ->
            WRITE_FENCE(n, A.guess);
            A.seen[n] = A.guess + 1;
            A.votes = A.votes | (1 << n);
            printf("attempt %d: node %d gives its key and accepts token %d\n", a, n, A.guess)
        :: else ->
            A.seen[n] = READ(n) + 1;
            printf("attempt %d: node %d gives its key and reports fence %d\n", a, n, READ(n));
            FIX_FENCE(n)
        fi
    }
}

/* The same request, when its answer is no longer of use. */
inline claim_late_at(n)
{
    d_step { A.stage > ASKING && COUNTS(n, a) && FREE_FOR(n, a) &&
             MAX(A.guess, A.token) > READ(n) ->
        SET_KEY(n, a + 1);
        if
        :: A.guess > READ(n) -> WRITE_FENCE(n, A.guess)
        :: else -> FIX_FENCE(n)
        fi;
        printf("attempt %d: node %d gives its key, late\n", a, n)
    }
}

/* Phase 2. A second vote would be refused, so that the key makes no difference after the first. */
inline vote_at(n)
{
    d_step { A.stage > ASKING && A.token != 0 && COUNTS(n, a) && HAS_KEY(n, a) &&
             ACCEPTS(n, A.token) ->
        WRITE_FENCE(n, A.token);
        SET_KEY(n, 0);
        if
        :: A.stage == VOTING -> A.votes = A.votes | (1 << n)
        :: else
        fi;
        printf("attempt %d: node %d accepts token %d\n", a, n, A.token)
    }
}

/* The client: a majority has reported its fences, node n the largest of them. (seen: the fence + 1.) */
#define NOT_ABOVE(n, m)  (A.seen[m] != 0 && A.seen[m] <= A.seen[n])
inline choose_by(n)
{
    d_step { A.stage == ASKING && A.seen[n] != 0 && SUM(NOT_ABOVE, n) >= MAJORITY ->
        A.token = A.seen[n];
        A.stage = VOTING;
        A.votes = (A.guess == A.token -> A.votes : 0);
        printf("attempt %d: asks for token %d in epoch %d\n", a, A.token, A.group);
        for (i : 0 .. NODES - 1) {
            A.seen[i] = 0
        }
        i = 0
    }
}

proctype requests(byte a)
{
end:
    do
    EACH_NODE(claim_at)
    EACH_NODE(claim_late_at)
    EACH_NODE(choose_by)
    EACH_NODE(vote_at)
    od
}

/* ---- clients ---- */

#define IS_OPEN  (A.stage == ASKING || A.stage == VOTING)
#define VOTE(a, n)  ((A.votes >> n) & 1)

#define CLEAR_ANSWERS \
    A.votes = 0; \
    A.before = 0; \
    for (i : 0 .. NODES - 1) { \
        A.seen[i] = 0 \
    } \
    i = 0

proctype client(byte c)
{
    byte a = c * ROUNDS, last = START;

end:
    do
    :: atomic { A.stage == IDLE && /* clients are alike: the first to begin is called the first */
                (c == 0 || attempt[(c - 1) * ROUNDS].stage != IDLE) ->
        A.stage = ASKING;
        A.before = largest;
        A.group = FIRST_EPOCH;
        do /* any epoch of which it may have heard */
        :: A.group < newest -> A.group++
        :: break
        od;
        if /* a new handle has no guess, or one that fits a name without a fence */
        :: true
        :: last > 0 -> A.guess = last + 1
#ifdef FRESH
        :: A.guess = largest + 2 /* more than its client has seen on other names */
#endif
        fi
    }
    :: d_step { IS_OPEN && SUM(VOTE, a) >= ENOUGH ->
        A.token = (A.stage == ASKING -> A.guess : A.token);
        printf("attempt %d: token %d is granted\n", a, A.token);
        assert(A.token > A.before); /* growing */
        for (i : 0 .. ATTEMPTS - 1) {
            assert(attempt[i].stage != GRANTED || attempt[i].token != A.token) /* unique */
        }
        A.stage = GRANTED;
        last = A.token;
        largest = MAX(largest, A.token);
        CLEAR_ANSWERS;
        a = (a % ROUNDS < ROUNDS - 1 -> a + 1 : a)
    }
    :: d_step { IS_OPEN && a % ROUNDS < ROUNDS - 1 ->
        A.stage = OVER;
        CLEAR_ANSWERS;
        a++
    }
    od
}

/* What is written to under the lock. A holder writes as often and as late as it likes. */
#ifdef STORE
byte stored, writer;

proctype holder(byte a)
{
end:
    do
    :: d_step { A.stage == GRANTED && A.token >= stored ->
        assert(A.token > stored || writer == a);
        stored = A.token;
        writer = a
    }
    od
}
#endif

/* ---- what happens to nodes ---- */

inline key_expires(n)
{
    d_step { node[n].key != 0 -> node[n].key = 0; printf("node %d: its key expires\n", n) }
}

inline fence_expires(n)
{
    d_step { CAN_EXPIRE(n) -> node[n].fence = 0; printf("node %d: its fence key expires\n", n) }
}

inline other_name(n)
{
    d_step { others < OTHERS -> others++; node[n].highest++ }
}

#ifdef LOSES_A_WRITE /* the last second is not on the disk; the rest comes back, with its name */
inline forget(n)
{
    d_step { forgets < FORGETS && node[n].highest > 0 ->
        forgets++;
        node[n].key = 0;
        node[n].fence = 0;
        node[n].highest--;
        printf("node %d: loses its last write\n", n)
    }
}
#else
inline forget(n)
{
    d_step { forgets < FORGETS && FORGETFUL(n) ->
        forgets++;
        node[n].key = 0;
        node[n].fence = 0;
        node[n].highest = 0;
        node[n].group = EMPTY;
        printf("node %d: forgets\n", n)
    }
}
#endif

proctype weather()
{
end:
    do
    EACH_NODE(key_expires)
    EACH_NODE(fence_expires)
    EACH_NODE(other_name)
    EACH_NODE(forget)
    od
}

/* ---- adoption ---- */

#define DIFFERS(from, n)  (node[n].group != node[from].group)
#define DONE              255

/* A majority that has not forgotten goes to the new epoch, and reports its highest in that step. */
inline switch_at(n)
{
    d_step { ADOPTS(k, n) && IS_EPOCH(was[n]) && node[n].group == was[n] ->
        was[n] = DONE;
        node[n].group = mine;
        switched++;
        floor = MAX(floor, node[n].highest);
        printf("adoption %d: node %d goes to epoch %d\n", k, n, mine)
    }
}

inline adopt_at(n)
{
    d_step { was[n] == MARKED(k) && node[n].group == was[n] && switched >= MAJORITY ->
        was[n] = DONE;
        node[n].group = mine;
        node[n].highest = floor;
        printf("adoption %d: node %d is taken into epoch %d with fence %d\n", k, n, mine, floor)
    }
}

/* A node that was away when the others went on. It has forgotten nothing, and may follow, but only
 * to an epoch that was made after its own. (Here epochs are numbered in that order.) */
inline follow_at(n)
{
    d_step { follows < FOLLOWS && IS_EPOCH(node[n].group) && CAN_GO_TO(node[n].group TOWARDS) ->
        follows++;
        node[n].group = node[n].group TOWARDS;
        printf("node %d: goes to epoch %d\n", n, node[n].group)
    }
}

proctype follow()
{
end:
    do
    EACH_NODE(follow_at)
    od
}

proctype adopt(byte k)
{
    byte mine, floor, switched, was[NODES];

end_idle:
    d_step { k == adoptions && SUM(DIFFERS, 0) > 0 ->
        adoptions++;
        for (i : 0 .. NODES - 1) { /* what each node is; those that have forgotten are marked, before ... */
            if
            :: IS_EPOCH(node[i].group) -> mine = MAX(mine, node[i].group)
            :: else -> node[i].group = MARKED(k)
            fi;
            was[i] = node[i].group
        }
        mine = NEW_EPOCH(mine); /* ... the epoch is made */
        newest = MAX(newest, mine);
        i = 0
    }
end_under_way:
    do
    EACH_NODE(switch_at)
    EACH_NODE(adopt_at)
    od
}

init {
    byte x;
    atomic {
        for (x : 0 .. NODES - 1) {
            node[x].group = FIRST_EPOCH;
            node[x].highest = START;
            node[x].fence = START
        }
        for (x : 0 .. ATTEMPTS - 1) {
            run requests(x);
#ifdef STORE
            run holder(x)
#endif
        }
        for (x : 0 .. CLIENTS - 1) {
            run client(x)
        }
#if FOLLOWS
        run follow();
#endif
#if ADOPTIONS
        for (x : 0 .. ADOPTIONS - 1) {
            run adopt(x)
        }
#endif
        x = 0;
        run weather()
    }
}
