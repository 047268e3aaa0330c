/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to the cells. What is below cells.c and cell_list.c is in cell_found.c. */
#ifndef STILE_ETCD_CELLS_H
#define STILE_ETCD_CELLS_H

#include "engines/etcd/etcd.h"

#define CELL_TOKEN_DIGITS 19 /* of a token that is stored */

/* A cell as it was found in the server. */
struct cell_found {
    uint64_t version;  /* 0: none */
    const void *value; /* borrowed from the answer; NULL: none, or it was not asked for */
    size_t size;
    uint64_t token;
    char issuer[STILE_ISSUER_MAX + 1];
    int64_t lease;  /* that it ends with; 0: none */
    bool has_lease; /* one of its keys has */
    struct {
        int64_t value, token, issuer; /* mod_revision of its keys; 0: there is none */
    } at;
};

/* From the values of a guard's keys; kv NULL: there is no such key. CORRUPT: something else has
 * written it. */
enum stile_status etcd_cell_token(struct cell_found *found, const Etcd__KeyValue *kv,
                                  struct stile_error *err);
enum stile_status etcd_cell_issuer(struct cell_found *found, const Etcd__KeyValue *kv,
                                   struct stile_error *err);

/* The n-th response; *kv is NULL if there is no such key. False: it is no answer about one key. */
bool etcd_cell_key(const Etcd__KeyValue **kv, const Etcd__TxnResponse *answer, size_t n);
/* UNCERTAIN. */
enum stile_status etcd_cell_damaged(struct stile_error *err);

/* From an answer about the value, the token and the issuer, in this order. CORRUPT, or UNCERTAIN:
 * the answer has another form. */
enum stile_status etcd_cell_find(struct cell_found *found, const Etcd__TxnResponse *answer,
                                 struct stile_error *err);

/* Without its value, if it is NULL. */
void etcd_cell_report(struct cell_request *request, const char *key,
                      const struct cell_found *found);
void etcd_cell_end(struct cell_request *request, const struct stile_error *err); /* NULL: OK */

void etcd_cell_list(struct cell_request *request);

#endif
