/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fenced Redlock with clocks that run right: never two holders within their deadlines.
 *
 * fenced_redlock.pml, beside this file, shows that tokens are unique and grow whatever clocks do. This
 * model assumes that clocks run right and checks what leases promise then: of two holders that both
 * are within their deadlines there is never more than one. It has what the other model leaves out,
 * since tokens do not depend on it: queues, hand-over, release and withdrawal, renewal, the quiet time
 * after an adoption, and the change of a group's size.
 *
 * There is still no clock. What right clocks give is said as a rule instead:
 *   - A key that carries a vote (`firm`) does not expire while its holder is within its deadline: the
 *     node counts the lease from when it executes the request, the holder from before it sent it.
 *   - A quiet time lasts as long as the longest lease. So it ends only when every attempt whose lease
 *     was counted from before it began is over, or has been renewed by a request sent after it began.
 * All else may happen at any moment: any deadline, any other key's end, any message.
 *
 * The queue of a node is a set: whichever waiter is first is handed the key.
 *
 * An operator may break a lock. What is broken no longer counts as a holder from the moment at which
 * the operator names it: its client is told in a while, and until then two may hold. But no other
 * claim may lose by it.
 */

#ifndef OLD
#define OLD 3 /* nodes of the group */
#endif
#ifndef NEW
#define NEW 0 /* nodes after it was resized: the first so many; 0: it is not */
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 3
#endif
#ifndef FORGETS
#define FORGETS 0 /* so often a node loses everything */
#endif
#ifndef RENEWS
#define RENEWS 0 /* so often a holder renews its lease */
#endif
#ifndef BREAKS
#define BREAKS 0 /* 1: an operator breaks the lock once; each node hears of it at another time, or never */
#endif

#if NEW > OLD
#define ALL NEW
#else
#define ALL OLD
#endif

#if ALL == 3
#define EACH_NODE(step)  :: step(0) :: step(1) :: step(2)
#elif ALL == 4
#define EACH_NODE(step)  :: step(0) :: step(1) :: step(2) :: step(3)
#else
#define EACH_NODE(step)  :: step(0) :: step(1) :: step(2) :: step(3) :: step(4)
#endif

/* A node's group: nothing, an epoch of the old group, closed, or the new group. */
#define EMPTY    0
#define FIRST    1
#define ADOPTED  2
#define CLOSED   3
#define RESIZED  4

typedef Node {
    byte key;    /* 1 + the attempt that has it; 0: free */
    bool firm;   /* it carries a vote, and lives for the full time of the lease */
    byte queue;  /* the attempts that wait here, a bit each */
    byte group;
    byte before  /* quiet: the attempts that may still hold by what was before; 0: not quiet */
};
Node node[ALL];

#define IDLE     0
#define ASKING   1 /* phase 1, or in the queues */
#define VOTING   2 /* phase 2: the lease counts from here */
#define HOLDING  3 /* within its deadline */
#define OVER     4 /* released, withdrawn, lost, or past its deadline */

typedef Attempt {
    byte stage;
    byte group;   /* the epoch of the votes that it counts */
    byte votes;   /* a bit for each node */
    byte renewed; /* a bit for each node that has renewed it, since ... */
    byte since    /* ... these nodes were quiet already */
};
Attempt attempt[ATTEMPTS];
#define A attempt[a]

byte newest = FIRST, forgets, renews, holders;
byte named;  /* 1 + the attempt that the operator breaks; 0: none yet */
byte broken; /* the nodes that the break has reached, a bit each */
hidden byte i, n_votes;

#define BIT(x)          (1 << (x))
#define MAJORITY(g)     ((g) == RESIZED -> NEW / 2 + 1 : OLD / 2 + 1)
#define REACHES(g, n)   ((g) == RESIZED -> (n) < NEW : (n) < OLD)
#define IS_QUIET(n)     (node[n].before != 0)
#define IS_EPOCH(g)     ((g) == FIRST || (g) == ADOPTED || (g) == RESIZED)
#define COUNTS(a, n)    (REACHES(A.group, n) && node[n].group == A.group)
#define MAY_HOLD(b)     (attempt[b].stage == VOTING || attempt[b].stage == HOLDING)

/* ---- the rules, and what is left of them in the broken variants ---- */

#ifdef QUIET_HANDS_OVER /* the quiet time is for claims only: a release serves the next */
#define MAY_GIVE(n)  true
#define MAY_VOTE(n)  true
#else
#define MAY_GIVE(n)  (!IS_QUIET(n) && IS_EPOCH(node[n].group))
#define MAY_VOTE(n)  (!IS_QUIET(n))
#endif

#ifdef NO_QUIET_TIME /* an adopted or new node takes claims at once */
#define BE_QUIET(n)  skip
#else
#define BE_QUIET(n) \
    for (i : 0 .. ATTEMPTS - 1) { \
        node[n].before = node[n].before | (MAY_HOLD(i) -> BIT(i) : 0) \
    } \
    i = 0
#endif

#ifdef CLOSED_RENEWS /* a node of a closed group, or of another one, still renews a lease */
#define MAY_RENEW(a, n)  true
#else
#define SAME_GROUP(g, h)  (((g) == RESIZED) == ((h) == RESIZED))
#define MAY_RENEW(a, n)   (IS_EPOCH(node[n].group) && SAME_GROUP(node[n].group, A.group))
#endif

#ifdef BREAKS_ANY /* a break ends whatever has the key when it comes */
#define IS_NAMED(n)  true
#else
#define IS_NAMED(n)  (node[n].key == named)
#endif

#ifdef CLOSES_A_MINORITY /* the new group begins before a majority of the old one is closed */
#define CLOSED_ENOUGH  (OLD / 2)
#else
#define CLOSED_ENOUGH  (OLD / 2 + 1)
#endif

#define COUNT_BITS(sum, mask) \
    sum = 0; \
    for (i : 0 .. ALL - 1) { \
        sum = sum + (((mask) >> i) & 1) \
    } \
    i = 0

/* ---- what nodes do ---- */

/* Hands the key to one of the waiters; else it is free. */
inline serve(n)
{
    node[n].key = 0;
    node[n].firm = false;
    if
    :: MAY_GIVE(n) && node[n].queue != 0 ->
        i = 0;
        do
        :: (node[n].queue & BIT(i)) -> break
        :: i < ATTEMPTS - 1 && (node[n].queue >> (i + 1)) != 0 -> i++
        od;
        if
        :: node[n].queue & BIT(i) ->
            node[n].queue = node[n].queue & ~BIT(i);
            node[n].key = i + 1
        :: else
        fi;
        i = 0
    :: else
    fi
}

/* Phase 1: takes the key if it is free, or waits for it. */
inline claim_at(n)
{
    atomic { A.stage == ASKING && COUNTS(a, n) && node[n].key == 0 && !IS_QUIET(n) ->
        node[n].key = a + 1;
        node[n].firm = false;
        node[n].queue = node[n].queue & ~BIT(a)
    }
}

inline wait_at(n)
{
    atomic { A.stage == ASKING && COUNTS(a, n) && node[n].key != a + 1 &&
             (node[n].key != 0 || IS_QUIET(n)) && (node[n].queue & BIT(a)) == 0 ->
        node[n].queue = node[n].queue | BIT(a)
    }
}

inline vote_at(n)
{
    atomic { A.stage == VOTING && COUNTS(a, n) && node[n].key == a + 1 && MAY_VOTE(n) &&
             (A.votes & BIT(n)) == 0 ->
        node[n].firm = true;
        A.votes = A.votes | BIT(n)
    }
}

/* Release and withdrawal: one script. */
inline return_at(n)
{
    atomic { A.stage == OVER && REACHES(A.group, n) &&
             (node[n].key == a + 1 || (node[n].queue & BIT(a)) != 0) ->
        node[n].queue = node[n].queue & ~BIT(a);
        if
        :: node[n].key == a + 1 || node[n].key == 0 -> serve(n)
        :: else
        fi
    }
}

/* The same script from a client that has nothing here: a try that has failed takes back what it may
 * have left, and finds the key free. */
inline stranger_returns_at(n)
{
    atomic { node[n].key == 0 && node[n].queue != 0 && MAY_GIVE(n) -> serve(n) }
}

/* Gives way to another waiter, and waits again. */
inline yield_at(n)
{
    atomic { A.stage == ASKING && node[n].key == a + 1 ->
        serve(n);
        node[n].queue = node[n].queue | BIT(a)
    }
}

inline renew_at(n)
{
    atomic { A.stage == HOLDING && RENEWS > 0 && node[n].key == a + 1 && node[n].firm &&
             MAY_RENEW(a, n) && (A.renewed & BIT(n)) == 0 && (A.renewed & BIT(7)) ->
        A.renewed = A.renewed | BIT(n)
    }
}

/* ---- clients ---- */

proctype client(byte a)
{
end:
    do
    :: atomic { A.stage == IDLE && (a == 0 || attempt[a - 1].stage != IDLE) ->
        A.stage = ASKING;
        if /* any epoch of which it may have heard */
        :: A.group = FIRST
        :: newest != FIRST -> A.group = newest
        fi
    }
    EACH_NODE(claim_at)
#ifndef NO_QUEUES /* nobody waits: what is not free is given up. It has fewer states */
    EACH_NODE(wait_at)
    EACH_NODE(yield_at)
#endif
    :: atomic { A.stage == ASKING -> A.stage = VOTING }
    EACH_NODE(vote_at)
    :: atomic { A.stage == VOTING && A.votes != 0 ->
        COUNT_BITS(n_votes, A.votes);
        if
        :: n_votes >= MAJORITY(A.group) ->
            A.stage = HOLDING;
            A.votes = 0;
            holders = (a + 1 != named -> holders + 1 : holders);
            assert(holders <= 1)
        :: else
        fi;
        n_votes = 0
    }
#if RENEWS
    /* Bit 7 of renewed: a renewal is under way. */
    :: atomic { A.stage == HOLDING && renews < RENEWS && A.renewed == 0 ->
        renews++;
        A.renewed = BIT(7);
        A.since = 0;
        for (i : 0 .. ALL - 1) {
            A.since = A.since | (IS_QUIET(i) -> BIT(i) : 0)
        }
        i = 0
    }
    EACH_NODE(renew_at)
    :: atomic { A.stage == HOLDING && A.renewed != 0 ->
        COUNT_BITS(n_votes, A.renewed & 127);
        if
        :: n_votes >= MAJORITY(A.group) ->
            for (i : 0 .. ALL - 1) {
                node[i].before = ((A.since & BIT(i)) -> node[i].before & ~BIT(a) : node[i].before)
            }
            i = 0;
            A.renewed = 0;
            A.since = 0
        :: else
        fi;
        n_votes = 0
    }
#endif
    /* Released, or past its deadline; withdrawn, or given up. Its lease does not count any longer. */
    :: atomic { A.stage == ASKING || A.stage == VOTING || A.stage == HOLDING ->
        holders = (A.stage == HOLDING && a + 1 != named -> holders - 1 : holders);
        A.stage = OVER;
        A.votes = 0;
        A.renewed = 0;
        A.since = 0;
        for (i : 0 .. ALL - 1) {
            node[i].before = node[i].before & ~BIT(a)
        }
        i = 0
    }
    EACH_NODE(return_at)
    od
}

/* ---- what happens to nodes ---- */

inline key_expires(n)
{
    atomic { node[n].key != 0 && !(node[n].firm && MAY_HOLD(node[n].key - 1)) ->
        node[n].key = 0;
        node[n].firm = false
    }
}

inline forget(n)
{
    atomic { forgets < FORGETS && n < OLD && IS_EPOCH(node[n].group) ->
        forgets++;
        node[n].key = 0;
        node[n].firm = false;
        node[n].queue = 0;
        node[n].group = EMPTY;
        node[n].before = 0
    }
}

proctype weather()
{
end:
    do
    EACH_NODE(key_expires)
#ifndef NO_QUEUES
    EACH_NODE(stranger_returns_at)
#endif
#if FORGETS
    EACH_NODE(forget)
#endif
    od
}

/* ---- breaking ---- */

inline break_at(n)
{
    atomic { named != 0 && (broken & BIT(n)) == 0 && node[n].key != 0 && IS_NAMED(n) ->
        broken = broken | BIT(n);
        serve(n)
    }
}

proctype operator()
{
    byte a;
end_none_held:
    atomic {
        if
        :: attempt[0].stage == HOLDING -> a = 0
        :: attempt[1].stage == HOLDING -> a = 1
#if ATTEMPTS > 2
        :: attempt[2].stage == HOLDING -> a = 2
#endif
        fi;
        named = a + 1;
        holders--;
        a = 0
    }
end:
    do
    EACH_NODE(break_at)
    od
}

/* ---- adoption ---- */

byte switched, closed;

inline switch_at(n)
{
    atomic { node[n].group == FIRST && n < OLD && forgets > 0 ->
        node[n].group = ADOPTED;
        newest = (newest == FIRST -> ADOPTED : newest);
        switched++
    }
}

inline adopt_at(n)
{
    atomic { node[n].group == EMPTY && n < OLD && switched >= OLD / 2 + 1 ->
        node[n].group = ADOPTED;
        BE_QUIET(n)
    }
}

proctype adopt()
{
end:
    do
    EACH_NODE(switch_at)
    EACH_NODE(adopt_at)
    od
}

/* ---- another size ---- */

inline close_at(n)
{
    atomic { n < OLD && (node[n].group == FIRST || node[n].group == ADOPTED) ->
        node[n].group = CLOSED;
        closed++
    }
}

/* A node that stays has its keys still; they are of leases that the quiet time waits for. */
inline open_at(n)
{
    atomic { n < NEW && closed >= CLOSED_ENOUGH &&
             (node[n].group == CLOSED || node[n].group == EMPTY && n >= OLD) ->
        node[n].group = RESIZED;
        newest = RESIZED;
        BE_QUIET(n)
    }
}

proctype resize()
{
end:
    do
    EACH_NODE(close_at)
    EACH_NODE(open_at)
    od
}

init {
    byte x;
    atomic {
        for (x : 0 .. OLD - 1) {
            node[x].group = FIRST
        }
        for (x : 0 .. ATTEMPTS - 1) {
            run client(x)
        }
#if FORGETS
        run adopt();
#endif
#if NEW
        run resize();
#endif
#if BREAKS
        run operator();
#endif
        x = 0;
        run weather()
    }
}
