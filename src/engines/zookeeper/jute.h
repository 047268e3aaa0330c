/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* ZooKeeper's wire format (Jute): big-endian integers; strings, vectors and packets start with
 * their length; a record is a sequence of fields.
 *
 * Reading is bounded by the packet: whatever a length says, no byte beyond the end is read, and
 * nothing is allocated that the packet has no room for. A field that does not fit makes the reader
 * bad, and every later field reads as zero: a decoder reads all its fields and checks once. */
#ifndef STILE_ZOOKEEPER_JUTE_H
#define STILE_ZOOKEEPER_JUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"

/* A listing of a million names is smaller; a greater length means damage. */
#define JUTE_PACKET_MAX (64u << 20)

enum jute_request {
    JUTE_DELETE = 2,
    JUTE_EXISTS = 3,
    JUTE_GET_DATA = 4,
    JUTE_SET_DATA = 5,
    JUTE_SYNC = 9,
    JUTE_GET_CHILDREN = 12, /* with the parent's Stat */
    JUTE_MULTI = 14,
    JUTE_CREATE = 15, /* with the node's Stat */
    JUTE_CREATE_CONTAINER = 19,
    JUTE_AUTH = 100,
    JUTE_SET_WATCHES = 101,
    JUTE_GET_EPHEMERALS = 103, /* of this session; since 3.6 */
    JUTE_CLOSE_SESSION = -11,
};

/* Packets that do not answer a numbered request. */
enum jute_xid { JUTE_XID_EVENT = -1, JUTE_XID_AUTH = -4, JUTE_XID_SET_WATCHES = -8 };

enum jute_event {
    JUTE_EVENT_CREATED = 1,
    JUTE_EVENT_DELETED = 2,
    JUTE_EVENT_CHANGED = 3,
    JUTE_EVENT_CHILD = 4,
};

enum jute_create_mode {
    JUTE_PERSISTENT = 0,
    JUTE_EPHEMERAL = 1,
    JUTE_EPHEMERAL_SEQUENTIAL = 3,
    JUTE_CONTAINER = 4,
};

struct jute_stat {
    int64_t czxid, mzxid, ctime, mtime;
    int32_t version, cversion, aversion;
    int64_t ephemeral_owner;
    int32_t data_length, num_children;
    int64_t pzxid;
};

/* The strings are borrowed from the packet; the array is owned. */
struct jute_strings {
    size_t n;
    const char **list;
};

/* ---- reading: in place, which changes the packet ---- */

struct jute_reader {
    char *at, *end;
    bool bad;
    bool out_of_memory;
};

int32_t zk_jute_read_int(struct jute_reader *reader);
int64_t zk_jute_read_long(struct jute_reader *reader);
bool zk_jute_read_bool(struct jute_reader *reader);
/* NULL: the field is null, or the reader is bad. */
const char *zk_jute_read_bytes(struct jute_reader *reader, size_t *n);
/* NUL-terminated, written over its length field. Bad if it is null or contains a NUL. */
const char *zk_jute_read_string(struct jute_reader *reader);
void zk_jute_read_strings(struct jute_reader *reader, struct jute_strings *strings);
void zk_jute_strings_free(struct jute_strings *strings);
void zk_jute_read_stat(struct jute_reader *reader, struct jute_stat *stat);

/* ---- writing: one packet at a time ---- */

/* Zero-initialised means empty. Its memory is reused for the next packet. */
struct jute_writer {
    struct buffer buffer;
    bool failed; /* out of memory */
};

void zk_jute_begin(
    struct jute_writer *writer); /* a packet; its length is filled in by zk_jute_end() */
void zk_jute_write_int(struct jute_writer *writer, int32_t value);
void zk_jute_write_long(struct jute_writer *writer, int64_t value);
void zk_jute_write_bool(struct jute_writer *writer, bool value);
void zk_jute_write_bytes(struct jute_writer *writer, const void *bytes, size_t n); /* NULL: none */
void zk_jute_write_string(struct jute_writer *writer, const char *text);
void zk_jute_write_record(struct jute_writer *writer, const char *bytes, size_t n); /* as it is */
/* The whole packet, with its length; NULL: out of memory. Valid until the next zk_jute_begin(). */
const char *zk_jute_end(struct jute_writer *writer, size_t *n);
void zk_jute_put_int(char *at, int32_t value); /* into a finished packet */

#endif
