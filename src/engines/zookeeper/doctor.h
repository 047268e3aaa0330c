/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What the doctor knows of the servers, and what follows from it. */
#ifndef STILE_ZOOKEEPER_DOCTOR_H
#define STILE_ZOOKEEPER_DOCTOR_H

#include "engines/zookeeper/zookeeper.h"

/* The four-letter words that are sent, in this order. */
enum word { WORD_RUOK, WORD_SRVR, WORD_CONF, WORD_MNTR, WORDS };

extern const char *const zk_doctor_words[WORDS];

struct server_facts {
    const char *where;
    bool duplicate;     /* another host of the URL is the same server */
    bool answered;      /* at least one word */
    char error[160];    /* why it answered none */
    bool closed[WORDS]; /* not in its whitelist */
    bool not_serving;   /* it runs, without a leader */
    char version[40];
    char mode[16]; /* "": not known */
    long tick_ms, min_ms, max_ms;
    long connections; /* limit for one address; 0: none, -1: not known */
    size_t voters;    /* of its ensemble; 0: not known */
    long followers;   /* in sync with it, if it is the leader; -1: not known */
};

struct ensemble_facts {
    struct server_facts *servers;
    size_t n;
    long asked_ms;            /* our own session */
    long given_ms;            /* 0: there is none */
    struct stile_error error; /* why */
};

void zk_doctor_read_answer(struct server_facts *server, enum word word, const char *text);
void zk_doctor_judge(const struct ensemble_facts *ensemble, doctor_report *report, void *data);

#endif
