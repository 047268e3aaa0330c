/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The group: which nodes belong together, and which of them have not forgotten.
 *
 * A token is unique and grows because any two majorities have a node in common that remembers. So
 * each node keeps the name of its group, "id.epoch". A node that has lost its data replies without
 * it, and does not count. A group is founded once, when all nodes answer and none has a group: the
 * proposals "?id" go down to the smallest until all nodes have the same, and only then it is
 * settled as "id.1". So two founders can't make two groups.
 *
 * A node that forgot is taken back by adoption. It is marked ("!" and a random number); a majority
 * that has not forgotten goes to the next epoch and reports its highest fence in the same step; the
 * node gets the largest of them, if it still has the mark. Votes of two epochs never add up: a
 * grant that counts a vote from before the node forgot has its other votes from before the change
 * of epoch, and so is covered by the reports. An epoch has a random part: two adoptions that know
 * nothing of each other must not make the same one. Earlier epochs are on record beside it, so that
 * a node that was away can be led forward, and never back. */
#ifndef STILE_REDLOCK_GROUP_H
#define STILE_REDLOCK_GROUP_H

#include "engines/redlock/redlock.h"

/* Random hex digits, up to GROUP_ID. 0 or an errno value. */
int redlock_group_draw(char *hex, size_t digits, struct loop *loop);
/* Whether it is in this list. A closed epoch is the same epoch. */
bool redlock_group_is_older(const char *group, const char *was);
/* False: this is not the name of a settled group. */
bool redlock_group_read(char id[GROUP_ID + 1], uint32_t *epoch, const char *text);
/* The size that is part of the name; 0: none is. */
unsigned redlock_group_size(const char *text);
/* It has agreed to a group of another size, and no longer votes. */
bool redlock_group_is_closed(const char *text);
/* It has forgotten, and its adoption has begun. */
bool redlock_group_is_mark(const char *text);

#define NEXT_MAX (2 * (GROUP_MAX + 1) + LABELS_MAX)
#define PAST_MAX (4 * (GROUP_ID + 1))

/* What a node has on record of itself. */
struct node_record {
    struct survey *survey;
    bool answered;
    bool changed; /* by the last request: it was as expected, and is as wanted */
    char group[GROUP_MAX + 1], was[WAS_MAX + 1];
    char label[LABEL_LEN + 1], labels[LABELS_MAX + 1];
    unsigned n;              /* of its group; 0: an older release has recorded none */
    char next[NEXT_MAX + 1]; /* "epoch group labels": agreed to in that epoch */
    char past[PAST_MAX + 1]; /* groups before this one */
    uint64_t highest, longest_ms;
};

/* All nodes are asked, or some of them; fn is called when all of these have answered or failed. */
struct survey {
    struct redlock *redlock;
    const struct url *url; /* the first time: INFO is asked for, too */
    struct node_record records[NODES_MAX];
    unsigned pending, rounds;
    bool recorded; /* its size was written, or found */
    bool settled;  /* one node was seen in a group: all of them had agreed by then */
    void (*fn)(struct survey *survey);
    void (*done)(struct survey *survey);  /* by the last fn, once */
    void (*heard)(struct survey *survey); /* nodes were asked, or one has answered; NULL: none */
    void *data;
    struct stile_error error; /* how it ended */

    /* Adoption. */
    uint32_t epoch; /* its number, for messages */
    char id[GROUP_ID + 1], group[GROUP_MAX + 1];
    uint64_t longest_ms; /* for so long they stay quiet */
    unsigned strays;     /* how many were in epochs that the others could not follow to */
    unsigned adopted;    /* nodes, one bit each */
    unsigned members,
        needy; /* the same; see redlock_group_members() and redlock_labels_reassign() */
    char labels[LABELS_MAX + 1]; /* of the new epoch, or of the new group */

    /* Another size. */
    bool sized;              /* its size is part of its name */
    unsigned was_n;          /* nodes before */
    char next[NEXT_MAX + 1]; /* "group labels" */
    char past[PAST_MAX + 1];
};

/* ---- group.c: labels ---- */

/* Whether a word is in a list of words separated by spaces. */
bool redlock_words_have(const char *list, const char *word);
/* Of all nodes, in an order that does not depend on the URL; false: one of them has none. */
bool redlock_labels_of_all(char labels[LABELS_MAX + 1], const struct survey *survey);
/* Replaces labels of nodes that are not among the members by those of nodes that need a place in
 * the list, one bit each. Returns those that got one. */
unsigned redlock_labels_reassign(char labels[LABELS_MAX + 1], const struct survey *survey,
                                 unsigned members, unsigned needy);

/* ---- group.c: asking the nodes, and changing what they have on record ---- */

void redlock_survey_ask(struct survey *survey, void (*fn)(struct survey *survey));
/* Between begin and end: one request more that fn waits for. Each starts from the node's last
 * record. */
void redlock_survey_begin(struct survey *survey, void (*fn)(struct survey *survey));
void redlock_survey_propose(struct survey *survey, unsigned node, const char *text);
void redlock_survey_change(struct survey *survey, unsigned node, const struct node_record *to);
void redlock_survey_adopt(struct survey *survey, unsigned node, const struct node_record *as);
void redlock_survey_record(struct survey *survey, unsigned node, const char *labels);
void redlock_survey_close(struct survey *survey, unsigned node, const char *next);
void redlock_survey_end(struct survey *survey);
unsigned redlock_survey_answering(const struct survey *survey); /* nodes, one bit each */
void redlock_survey_stop(struct survey *survey);                /* fn is no longer called */
/* How many nodes are settled in the group that most are settled in; its id and latest epoch. */
unsigned redlock_survey_majority(const struct survey *survey, char id[GROUP_ID + 1],
                                 uint32_t *epoch);

/* ---- group.c: members ---- */

/* Of those that answer, the members of this group whose votes and memories add up: one bit each.
 * With a majority of them an epoch can be made. leader: one that is in the epoch most are in. */
unsigned redlock_group_members(const struct survey *survey, const char *id,
                               const struct node_record **leader);
/* One of the epoch that most members are in, or can follow to. */
const struct node_record *redlock_group_leader(const struct survey *survey, const char *id);
/* Whether this node is in the list; an empty list has every node. */
bool redlock_group_lists(const char *labels, const struct node_record *record);
/* How many of its members are neither in the latest epoch nor can follow to it. */
unsigned redlock_group_strays(const struct survey *survey, const char *id);

/* ---- group.c: following from epoch to epoch, while claims are made ---- */

/* A node has replied this instead of voting: group, was, labels, past. NULL or "": it has none. */
void redlock_group_hear(struct node *node, const char *const texts[4]);
/* Goes to a new epoch, and leads all nodes there that are in one of those before it. */
void redlock_group_enter(struct redlock *redlock, const char *group, const char *was,
                         const char *labels);
/* Leads the node to our epoch, if it is behind. */
void redlock_group_lead(struct node *node);
/* The claim was asked for under an epoch that is over. */
bool redlock_group_is_newer(struct redlock_claim *claim);

/* ---- join.c ---- */

/* Looks for the group, or founds it; survey->done() when that is over. For open(). */
void redlock_group_join(struct survey *survey);

#endif
