/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Which remedy fits: the questions, their answers, and one table of rules.
 *
 * The first rule that fits all answers is the advice. The same table is printed by `stile advise
 * --table`, from which docs/choosing.py writes docs/choosing.md and the table in README.md. Nothing
 * here reads or prints. */
#ifndef STILE_ADVICE_H
#define STILE_ADVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* In the order in which they are asked: the first ones rule out most. */
enum advice_question { ASK_ACCESS, ASK_WHERE, ASK_HOLD, ASK_CONTENTION, ASK_GOAL, ASK_ENGINES };
#define ADVICE_QUESTIONS 6

#define BIT(answer) (1U << (answer))

enum advice_access { READS, WRITES, ADDS, ONCE, LEADS, CALLS };
enum advice_where {
    IN_POSTGRES,
    IN_MYSQL,
    IN_SQLITE,
    IN_REDIS,
    IN_FILE,
    IN_HTTP,
    IN_CELL,
    IN_OTHER
};
enum advice_hold { INSTANT, SHORT, LONG };
enum advice_contention { LOW, HIGH };
enum advice_goal { EFFICIENCY, CORRECTNESS };
enum advice_engine { LOCAL, REDIS, REDLOCK, ETCD, ZK, POSTGRES, MYSQL, DYNAMODB };
#define ADVICE_ENGINES 8

struct advice_choice {
    const char *word, *meaning;
};

struct advice_question_text {
    const char *flag; /* without the dashes */
    const char *text;
    struct advice_choice choices[9]; /* by answer; ends with a NULL word */
};

extern const struct advice_question_text advice_questions[ADVICE_QUESTIONS];

/* A set of answers to each question, as bits; 0: not answered. Only ASK_ENGINES may have several.
 */
struct advice_answers {
    unsigned picked[ADVICE_QUESTIONS];
};

enum advice_kind { NO_LOCK, CELL, OWN_LOCK, LOCK };

struct advice_rule {
    const char *id;
    enum advice_kind kind;
    /* Bits of the answers that fit; 0: all of them. ASK_ENGINES is in `engines` instead. */
    unsigned fits[ADVICE_QUESTIONS];
    /* The engines that serve, the best one first; one must be at hand. n_engines 0: none is used.
     */
    unsigned char engines[ADVICE_ENGINES];
    unsigned char n_engines;
    bool guarded;      /* with ASK_GOAL correctness, the guard of the place is part of the advice */
    bool shared;       /* the lock is one of readers and writers */
    const char *brief; /* the row in README.md; NULL: no row */
    const char *use;
    const char *why; /* two sentences */
    /* What to type; {engine}, {ttl} and {guard} are replaced. NULL: the same as `command`. */
    const char *command, *in_mysql, *in_sqlite;
    const char *read; /* where to read on */
};

extern const struct advice_rule advice_rules[];
extern const size_t advice_n_rules;

/* Adds what an answer implies: several Redis servers are also one. */
void advice_complete(struct advice_answers *answers);
/* The first unanswered question that can still change the advice; -1: none. */
int advice_next_question(const struct advice_answers *answers);
/* The first rule that fits; NULL while advice_next_question() has one. */
const struct advice_rule *advice_for(const struct advice_answers *answers);

#define ADVICE_TEXT_MAX 512

struct advice {
    const struct advice_rule *rule;
    int engine;                    /* -1: none is used */
    const char *ttl;               /* NULL: there is none */
    const char *guard;             /* how the writes are checked; NULL: no guard is needed */
    char command[ADVICE_TEXT_MAX]; /* with all its values */
};

/* The rule with the engine, the TTL and the guard that these answers need. */
void advice_make(struct advice *advice, const struct advice_answers *answers);

enum advice_hold advice_hold_of(int64_t ms);

#endif
