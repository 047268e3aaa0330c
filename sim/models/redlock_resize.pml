/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group of fenced Redlock is given other nodes: one group follows it at most, the old one grants
 * nothing from then on, and the new one begins with the largest token that the old one has granted.
 *
 * Several operators may run `stile doctor --resize` at once, each with other nodes in mind; each may
 * be stopped for ever between any two steps, and its requests may come late. Others adopt meanwhile.
 * Which nodes an operator has in mind is its number here. What leases need is in redlock_leases.pml,
 * what tokens need within one group in fenced_redlock.pml.
 */

#ifndef NODES
#define NODES 3 /* of the old group; or 5 */
#endif
#ifndef OPERATORS
#define OPERATORS 2
#endif
#ifndef ADOPTERS
#define ADOPTERS 1 /* the first so many of the operators only make a new epoch */
#endif
#ifndef GRANTS
#define GRANTS 3
#endif

#define MAJORITY  (NODES / 2 + 1)

#if NODES == 3
#define EACH_NODE(step)  :: step(0) :: step(1) :: step(2)
#else
#define EACH_NODE(step)  :: step(0) :: step(1) :: step(2) :: step(3) :: step(4)
#endif

typedef Node {
    byte epoch;
    bool closed;
    byte agreed_in; /* the epoch in which it has agreed to a new group; 0: to none */
    byte agreed_to;
    byte highest    /* token */
};
Node node[NODES];

byte newest = 1, granted, grants, successor;
hidden byte i;

#ifdef IGNORES_AGREEMENTS /* each operator closes the old group for the nodes that it has in mind */
#define REPORTS(n)  false
#else
#define REPORTS(n)  (node[n].agreed_in > best)
#endif

#ifdef REOPENS /* a later epoch opens a node again that has agreed to a new group */
#define STAYS_CLOSED(n)  false
#else
#define STAYS_CLOSED(n)  node[n].closed
#endif

#ifdef READS_BEFORE_CLOSING /* the highest token is what the nodes said when they went on */
#define FLOOR_ON_MOVE(n)   floor = (node[n].highest > floor -> node[n].highest : floor)
#define FLOOR_ON_CLOSE(n)  skip
#else
#define FLOOR_ON_MOVE(n)   skip
#define FLOOR_ON_CLOSE(n)  floor = (node[n].highest > floor -> node[n].highest : floor)
#endif

/* A majority of open nodes in one epoch grants the next token. */
inline grant_by(n)
{
    atomic { grants < GRANTS && !node[n].closed ->
        byte voters = 0, token = 0;
        for (i : 0 .. NODES - 1) {
            if
            :: node[i].epoch == node[n].epoch && !node[i].closed && voters < MAJORITY ->
                if /* or its answer is lost */
                :: voters++; votes = votes | (1 << i);
                   token = (node[i].highest > token -> node[i].highest : token)
                :: skip
                fi
            :: else
            fi
        }
        if
        :: voters >= MAJORITY ->
            grants++;
            assert(successor == 0); /* the old group is over */
            granted = token + 1;
            for (i : 0 .. NODES - 1) {
                node[i].highest = ((votes & (1 << i)) -> granted : node[i].highest)
            }
        :: else
        fi;
        i = 0; votes = 0; voters = 0; token = 0
    }
}

proctype clients()
{
    byte votes;
end:
    do
    EACH_NODE(grant_by)
    od
}

inline move_at(n)
{
    atomic { stage == 1 && was[n] != 0 && node[n].epoch == was[n] ->
        was[n] = 0;
        node[n].epoch = mine;
        node[n].closed = STAYS_CLOSED(n);
        moved++;
        FLOOR_ON_MOVE(n);
        if
        :: REPORTS(n) -> best = node[n].agreed_in; value = node[n].agreed_to
        :: else
        fi
    }
}

inline close_at(n)
{
    atomic { stage == 2 && node[n].epoch == mine && node[n].agreed_in != mine ->
        node[n].closed = true;
        node[n].agreed_in = mine;
        node[n].agreed_to = value;
        FLOOR_ON_CLOSE(n);
        closed++
    }
}

proctype operator(byte k)
{
    byte stage, mine, moved, closed, best, value, floor, was[NODES];
end:
    do
    :: atomic { stage == 0 ->
        for (i : 0 .. NODES - 1) {
            was[i] = node[i].epoch
        }
        i = 0;
        newest++;
        mine = newest;
        stage = 1
    }
    EACH_NODE(move_at)
    :: atomic { stage == 1 && moved >= MAJORITY && k >= ADOPTERS ->
        value = (best != 0 -> value : k + 1);
        stage = 2
    }
    EACH_NODE(close_at)
    :: atomic { stage == 2 && closed >= MAJORITY ->
        assert(successor == 0 || successor == value); /* one group at most */
        assert(floor >= granted);
        successor = value;
        stage = 3
    }
    od
}

init {
    byte x;
    atomic {
        for (x : 0 .. NODES - 1) {
            node[x].epoch = 1
        }
        for (x : 0 .. OPERATORS - 1) {
            run operator(x)
        }
        x = 0;
        run clients()
    }
}
