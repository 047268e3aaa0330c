/* The group: which nodes belong together, and which of them have not forgotten.
 *
 * A token is unique and grows because any two majorities have a node in common that remembers. So
 * each node carries the name of its group, "id.epoch"; one that has lost its data answers without
 * it, and does not count. A group is founded once, when all nodes answer and none has one: the
 * proposals "?id" go down to the smallest until all nodes have the same, and only then it is
 * settled as "id.1": so two founders can't make two groups.
 *
 * A node that forgot is taken back by adoption: it is marked ("!" and a random number); a majority
 * that has not forgotten goes to the next epoch, telling its highest fence in the same step; and
 * the node gets the largest of them, if it still has the mark. Votes of two epochs never add up: a
 * grant that counts what the node has said before it forgot, has its other votes from before the
 * change of epoch, and so is in what was told. An epoch has a random part: two adoptions that know
 * nothing of each other must not make the same one. What was before is on record beside it, so that
 * a node that was away can be led on, and never back. */
#ifndef STILE_REDLOCK_GROUP_H
#define STILE_REDLOCK_GROUP_H

#include "engines/redlock/redlock.h"

/* Random hex digits, up to GROUP_ID. 0 or an errno value. */
int group_draw(char *hex, size_t digits, struct loop *loop);
/* It is in this list. A closed epoch is the same epoch. */
bool group_is_older(const char *group, const char *was);
/* False: it isn't a settled group's name. */
bool group_read(char id[GROUP_ID + 1], uint32_t *epoch, const char *text);
/* The size that is part of the name; 0: none is. */
unsigned group_size(const char *text);
/* It has agreed to a group of another size, and gives no votes any longer. */
bool group_is_closed(const char *text);
/* It has forgotten, and its adoption has begun. */
bool group_is_mark(const char *text);

/* A node has said this instead of voting: group, was, seats, past. NULL or "": it has none. */
void group_hear(struct node *node, const char *const texts[4]);
/* To a new epoch, and all nodes with us that are in one of those. */
void group_go_on(struct redlock *redlock, const char *group, const char *was, const char *seats);
/* Takes it on to our epoch, if it is behind. */
void group_lead(struct node *node);
/* The claim was asked for under an epoch that is over. */
bool group_is_newer(struct redlock_claim *part);

#define NEXT_MAX (2 * (GROUP_MAX + 1) + SEATS_MAX)
#define PAST_MAX (4 * (GROUP_ID + 1))

/* What a node tells of itself. */
struct account {
    struct survey *survey;
    bool answered;
    bool changed; /* by the last request: it was as expected, and is as wanted */
    char group[GROUP_MAX + 1], was[WAS_MAX + 1];
    char seat[SEAT_LEN + 1], seats[SEATS_MAX + 1];
    unsigned n;              /* of its group; 0: an older release has recorded none */
    char next[NEXT_MAX + 1]; /* "epoch group seats": agreed to in that epoch */
    char past[PAST_MAX + 1]; /* groups before this one */
    uint64_t highest, longest_ms;
};

/* All nodes are asked, or some of them; fn is called when all of these have answered or failed. */
struct survey {
    struct redlock *redlock;
    const struct url *url; /* the first time: INFO is asked for, too */
    struct account accounts[NODES_MAX];
    unsigned pending, rounds;
    bool recorded; /* its size was written down, or somebody else's was found */
    bool settled;  /* one node was seen in a group: all of them had heard of it by then */
    void (*fn)(struct survey *survey);
    bool over;
    struct stile_error error; /* how it ended */

    /* Adoption. */
    uint32_t epoch; /* its number, for people */
    char id[GROUP_ID + 1], group[GROUP_MAX + 1];
    uint64_t longest_ms;       /* for so long they stay quiet */
    unsigned strays;           /* how many were in epochs that the others could not follow to */
    unsigned adopted;          /* nodes, one bit each */
    unsigned members, needy;   /* the same; see group_members() and seats_reassign() */
    char seats[SEATS_MAX + 1]; /* of the new epoch, or of the new group */

    /* Another size. */
    bool sized;              /* its size is part of its name */
    unsigned was_n;          /* nodes before */
    char next[NEXT_MAX + 1]; /* "group seats" */
    char past[PAST_MAX + 1];
    void (*done)(struct survey *survey);
    void *data;
};

/* ---- survey.c ---- */

void survey_ask(struct survey *survey, void (*fn)(struct survey *survey));
/* One request more that fn waits for. Between begin and end. All are from what it said last. */
void survey_begin(struct survey *survey, void (*fn)(struct survey *survey));
void survey_propose(struct survey *survey, unsigned node, const char *text);
void survey_change(struct survey *survey, unsigned node, const struct account *to);
void survey_adopt(struct survey *survey, unsigned node, const struct account *as);
void survey_record(struct survey *survey, unsigned node, const char *seats);
void survey_close(struct survey *survey, unsigned node, const char *next);
void survey_end(struct survey *survey);
void survey_stop(struct survey *survey); /* no call comes any more */
/* How many nodes are settled in the group that most are settled in; its id and latest epoch. */
unsigned survey_majority(const struct survey *survey, char id[GROUP_ID + 1], uint32_t *epoch);

/* ---- group.c ---- */

/* Looks for the group, or founds it: survey->over when that is done. For open(). */
void group_settle(struct survey *survey);
/* Of those that answer, the members of this group whose votes and memories add up: one bit each.
 * With a majority of them an epoch can be made. leader: one that is in the epoch most are in. */
unsigned group_members(const struct survey *survey, const char *id, const struct account **leader);
/* How many of its members are neither in the latest epoch nor can follow to it. */
unsigned group_strays(const struct survey *survey, const char *id);

/* ---- seats.c ---- */

bool seats_have(const char *seats, const char *seat);
void seats_add(char seats[SEATS_MAX + 1], const char *seat);
unsigned seats_count(const char *seats);
/* A label for a node. Its end depends on its address: a hint at which seat was the node's before.
 */
int seats_draw(char seat[SEAT_LEN + 1], const struct node *node);
/* Of all nodes, in an order that does not depend on the URL; false: one of them has none. */
bool seats_of_all(char seats[SEATS_MAX + 1], const struct survey *survey);
/* Seats of nodes that are not among the members are given to those in need of one, one bit each.
 * Returns those that got one. */
unsigned seats_reassign(char seats[SEATS_MAX + 1], const struct survey *survey, unsigned members,
                        unsigned needy);

/* ---- adopt.c ---- */

/* Those that have none get a mark: what is said to a node later is said to this memory of it. */
void group_mark(struct survey *survey, unsigned nodes, void (*fn)(struct survey *survey));
/* The next epoch of the group survey->id, to which all of these are asked to go. */
void group_move_on(struct survey *survey, unsigned nodes, unsigned n, const char *seats,
                   void (*fn)(struct survey *survey));
bool group_has_forgotten(const struct account *account);

/* Takes back all nodes that have forgotten. done() comes from the loop: survey->error, ->adopted.
 */
void group_adopt(struct survey *survey);

#endif
