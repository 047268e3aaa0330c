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
/* It is in this list. */
bool group_is_older(const char *group, const char *was);
/* False: it isn't a settled group's name. */
bool group_read(char id[GROUP_ID + 1], uint32_t *epoch, const char *text);
/* It has forgotten, and its adoption has begun. */
bool group_is_mark(const char *text);

/* A node has said this instead of voting; NULL or "": it has no group. */
void group_hear(struct node *node, const char *text, const char *was);
/* To a new epoch, and all nodes with us that are in one of those. */
void group_go_on(struct redlock *redlock, const char *group, const char *was);
/* Takes it on to our epoch, if it is behind. */
void group_lead(struct node *node);
/* The claim was asked for under an epoch that is over. */
bool group_is_newer(struct redlock_claim *part);

/* What a node tells of itself. */
struct account {
    struct survey *survey;
    bool answered;
    bool changed; /* by the last request: it was as expected, and is as wanted */
    char group[GROUP_MAX + 1], was[WAS_MAX + 1], run_id[41];
    uint64_t highest, longest_ms;
    struct stile_error refusal; /* what it is can't be used for locks */
};

/* All nodes are asked, or some of them; fn is called when all of these have answered or failed. */
struct survey {
    struct redlock *redlock;
    const struct url *url; /* the first time: INFO is asked for, too */
    struct account accounts[NODES_MAX];
    unsigned pending, rounds;
    bool settled; /* one node was seen in a group: all of them had heard of it by then */
    void (*fn)(struct survey *survey);
    bool over;
    struct stile_error error; /* how it ended */

    /* Adoption. */
    uint32_t epoch; /* its number, for people */
    char id[GROUP_ID + 1], group[GROUP_MAX + 1];
    uint64_t longest_ms; /* for so long they stay quiet */
    unsigned strays;     /* how many were in epochs that the others could not follow to */
    unsigned adopted;    /* nodes, one bit each */
    void (*done)(struct survey *survey);
    void *data;
};

/* ---- survey.c ---- */

void survey_ask(struct survey *survey, void (*fn)(struct survey *survey));
/* One request more that fn waits for. Between begin and end. */
void survey_begin(struct survey *survey, void (*fn)(struct survey *survey));
void survey_propose(struct survey *survey, unsigned node, const char *text);
/* From what it said last; was: see scripts.h. */
void survey_change(struct survey *survey, unsigned node, const char *to, const char *was);
void survey_adopt(struct survey *survey, unsigned node, const struct account *as);
void survey_end(struct survey *survey);
void survey_stop(struct survey *survey); /* no call comes any more */
/* How many nodes are settled in the group that most are settled in; its id and latest epoch. */
unsigned survey_majority(const struct survey *survey, char id[GROUP_ID + 1], uint32_t *epoch);

/* ---- group.c ---- */

/* Looks for the group, or founds it: survey->over when that is done. For open(). */
void group_settle(struct survey *survey);
/* How many of its members are neither in the latest epoch nor can follow to it. */
unsigned group_strays(const struct survey *survey, const char *id);

/* ---- adopt.c ---- */

/* Takes back all nodes that have forgotten. done() comes from the loop: survey->error, ->adopted.
 */
void group_adopt(struct survey *survey);

#endif
