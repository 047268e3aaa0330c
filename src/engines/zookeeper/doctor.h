/* What follows for locks from what the servers say: findings, without any asking. */
#ifndef STILE_ZOOKEEPER_DOCTOR_H
#define STILE_ZOOKEEPER_DOCTOR_H

#include "engines/zookeeper/zookeeper.h"

/* The four-letter words that are asked, in this order. */
enum word { WORD_RUOK, WORD_SRVR, WORD_CONF, WORD_MNTR, WORDS };

extern const char *const zk_doctor_words[WORDS];

struct server_facts {
    const char *where;
    bool duplicate;     /* another one of the URL is the same */
    bool answered;      /* at least one word */
    char error[160];    /* why it did not */
    bool closed[WORDS]; /* it does not answer that one to anybody */
    bool not_serving;   /* it runs, and serves nobody */
    char version[40];
    char mode[16]; /* "": not known */
    long tick_ms, min_ms, max_ms;
    long connections; /* it takes so many from one address; 0: any number, -1: not known */
    size_t voters;    /* of its ensemble; 0: not known */
    long followers;   /* in step with it, if it leads; -1: not known */
};

struct ensemble_facts {
    struct server_facts *servers;
    size_t n;
    long asked_ms;            /* the session of our own */
    long given_ms;            /* 0: there is none */
    struct stile_error error; /* why */
};

typedef void finding_fn(void *data, const struct stile_finding *finding);

void zk_doctor_read_answer(struct server_facts *server, enum word word, const char *text);
void zk_doctor_judge(const struct ensemble_facts *facts, finding_fn *report_finding, void *data);

#endif
