/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Names as nodes: paths, dialects, the order of a queue, and the records of past holders. */
#ifndef STILE_ZOOKEEPER_NAMES_H
#define STILE_ZOOKEEPER_NAMES_H

#include "engines/engine.h"
#include "engines/zookeeper/jute.h"

#define BASE_MAX  512
#define PATH_ROOM (BASE_MAX + 3 * STILE_NAME_MAX + 128)
#define INFO_MAX  320
#define DATA_MAX  (INFO_MAX + STILE_PROCLAIM_MAX) /* of a claim's node */
#define GUID_SIZE 37                              /* with its dashes and the NUL */

struct zk;

enum dialect { CURATOR, CURATOR_RW, CURATOR_LATCH, KAZOO };

/* ---- paths ---- */

void zk_path_of_name(char path[PATH_ROOM], const struct zk *zk, const char *name, size_t len);
/* A node of ours that is in no queue: below a child of the base that stands for no name. */
void zk_path_of_own(char path[PATH_ROOM], const struct zk *zk, const char *node);
/* The node that holds the record of the name's last holder, together with those of other names. */
void zk_path_of_history(char path[PATH_ROOM], const struct zk *zk, const char *name, size_t len);
/* Cells are spread over 256 nodes, so that no listing becomes too long for other clients. */
#define CELLS_NODE "cells"
unsigned zk_shard_of_cell(const char *key, size_t len);
void zk_path_of_cell(char path[PATH_ROOM], const struct zk *zk, const char *key, size_t len);
/* The name or key that a node stands for; false: stile stores none this way. */
bool zk_name_of_child(char name[PATH_ROOM], const struct zk *zk, const char *child);
/* The start of a claim's node: the server appends ten digits. */
void zk_path_of_claim(char path[PATH_ROOM], const struct zk *zk, const struct claim *claim,
                      const char *guid);
/* The length of its node's path, as in the server's record of a session's end. */
size_t zk_path_bytes_of_claim(const struct zk *zk, const struct claim *claim);
bool zk_dialect_find(enum dialect *dialect, const char *name);
/* Clients of this dialect read the whole data of a node as its claim's public value. */
bool zk_dialect_names_by_data(enum dialect dialect);
void zk_guid_write(char guid[GUID_SIZE], enum dialect dialect, const uint8_t random[16]);

/* ---- the nodes in a queue ---- */

/* First in the queue first. Borrowed from the reply. */
struct node_list {
    const char **nodes;
    const char **sequences; /* their order: a part of each */
    signed char *modes;     /* as far as they were asked for; else -1 */
    size_t n;
};

enum stile_status zk_nodes_sort(struct node_list *list, const struct zk *zk,
                                const struct jute_strings *children, struct stile_error *err);
void zk_nodes_free(struct node_list *list);
/* n: it is not there. */
size_t zk_nodes_find(const struct node_list *list, const struct zk *zk, const char *node);
enum stile_mode zk_nodes_mode(const struct node_list *list, const struct zk *zk, size_t i);
/* Of a claim's node as we name it; false: it is none. */
bool zk_node_guid(char guid[GUID_SIZE], const struct zk *zk, const char *node);
enum stile_mode zk_node_mode(const struct zk *zk, const char *node);
/* The server has nearly used up the sequence numbers of this name. */
bool zk_node_numbers_run_out(const struct zk *zk, const struct claim *claim, const char *guid,
                             const char *node);

/* ---- hold records ---- */

struct record {
    int64_t hold_ms, delay_ms;
    uint64_t token;
    int64_t pid;
    const char *host, *command;
};

/* The GUID in a record's name; NULL: the node is no record. */
const char *zk_record_guid(enum stile_mode *mode, const char *node);
bool zk_record_is_orphan(const struct node_list *list, const char *guid); /* its claim has gone */
void zk_path_of_record(char path[PATH_ROOM], const struct zk *zk, const struct claim *claim,
                       const char *guid);
void zk_record_write(char data[INFO_MAX], const struct zk *zk, const struct record *record);
bool zk_record_read(struct record *record, char *data); /* cuts it up in place */
/* It has a lock-delay, and its holder's end has not been marked yet. */
bool zk_record_is_unmarked(const struct record *record, const struct jute_stat *stat);
/* Until when an orphan keeps the name locked; all times are the server's. */
int64_t zk_record_until_ms(const struct record *record, const struct jute_stat *stat,
                           int64_t now_ms);

#endif
