/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of locks, and their values: what is written, and how it is read back. */
#ifndef STILE_ETCD_KEYS_H
#define STILE_ETCD_KEYS_H

#include "engines/engine.h"
#include "engines/etcd/rpc.pb-c.h"

#define PREFIX_MAX 512
#define KEY_MAX    (PREFIX_MAX + 3 * STILE_NAME_MAX + 64)
#define VALUE_MAX  (STILE_PROCLAIM_MAX + 16)
#define BROKEN_BY  " broken by " /* what `stile break` adds to a value, before its own pid@host */

struct etcd;

struct key {
    size_t len;
    uint8_t bytes[KEY_MAX];
};

static inline ProtobufCBinaryData data_of(const struct key *key)
{
    return (ProtobufCBinaryData){.len = key->len, .data = (uint8_t *)key->bytes};
}

/* What follows the name in a key. */
struct key_suffix {
    enum stile_mode mode;
    bool ghost;
    bool plain; /* nothing: it is the name's plain key */
};

/* ---- written ---- */

/* "<prefix><name>/", with which all keys of the name's claims start. */
void etcd_key_of_name(struct key *key, const struct etcd *etcd, const char *name, size_t len);
/* The range of all keys that names with these first bytes can have. */
void etcd_keys_of_list(struct key *start, struct key *end, const struct etcd *etcd,
                       const char *prefix, size_t len);
/* The end of the range of all keys that start with `start`. */
void etcd_key_range_end(struct key *end, const struct key *start);
/* The first key that may follow this one; false: it is another program's, and too long for us. */
bool etcd_key_after(struct key *after, const ProtobufCBinaryData *key);
/* number: distinguishes claims of one lease on one name; 0: there is at most one. */
void etcd_key_of_claim(struct key *key, const struct etcd *etcd, const struct claim *claim,
                       int64_t lease, uint32_t number);
void etcd_key_of_ghost(struct key *key, const struct key *own, unsigned number);
/* For `show` only: the process behind a lease, and since when a claim exists. */
void etcd_key_of_owner(struct key *key, const struct etcd *etcd, int64_t lease);
void etcd_key_of_since(struct key *key, const struct etcd *etcd, int64_t lease, int64_t revision);
/* For the holder: which process has broken its lock. */
void etcd_key_of_break(struct key *key, const struct etcd *etcd, int64_t lease, int64_t revision);
/* The record of the name's last holder. */
void etcd_key_of_record(struct key *key, const struct etcd *etcd, const char *name, size_t len);

/* A cell: its value, and what its guard has seen. */
struct cell_keys {
    struct key value, token, issuer;
};
enum cell_part { CELL_VALUE, CELL_TOKEN, CELL_ISSUER, CELL_NOTHING };
void etcd_keys_of_cell(struct cell_keys *keys, const struct etcd *etcd, const char *name,
                       size_t len);
/* The range of all three. */
void etcd_keys_around_cell(struct key *start, struct key *end, const struct etcd *etcd,
                           const char *name, size_t len);
/* The range of the keys of all cells whose names have these first bytes. */
void etcd_keys_of_cells(struct key *start, struct key *end, const struct etcd *etcd,
                        const char *prefix, size_t len);
bool etcd_key_is_informational(const struct etcd *etcd, const ProtobufCBinaryData *key);
/* The name itself: what etcd3's Lock locks. */
void etcd_key_of_plain(struct key *key, const struct etcd *etcd, const char *name, size_t len);
/* The range that holds all keys of the name, and maybe some of other names. */
void etcd_keys_of_name(struct key *start, struct key *end, const struct etcd *etcd,
                       const char *name, size_t len);
/* What the key of a claim shows to its readers: "pid@host", or what its user proclaims. */
void etcd_value_of_claim(char value[VALUE_MAX], const struct etcd *etcd, const struct claim *claim);

/* ---- read back ---- */

/* bytes: what follows etcd_key_of_name(). False: it belongs to a longer name. */
bool etcd_suffix_parse(struct key_suffix *suffix, const uint8_t *bytes, size_t n);
/* With dialect=etcd3: whether this is the plain key of a longer name, not a claim on this one. */
bool etcd_suffix_is_plain(const struct etcd *etcd, const Etcd__KeyValue *kv, size_t at);
/* The part of a value that `show` prints; slots: 0 if it has none. */
const char *etcd_value_parse(unsigned *slots, const struct key_suffix *suffix, const char *value);
/* "pid@host"; NULL: it is something else. Else the host. */
const char *etcd_value_self(int64_t *pid, const char *value);
/* name has room for KEY_MAX; false: no key of a lock. */
bool etcd_key_parse(char *name, struct key_suffix *suffix, const struct etcd *etcd,
                    const Etcd__KeyValue *kv);
bool etcd_key_parse_plain(char *name, struct key_suffix *suffix, const struct etcd *etcd,
                          const Etcd__KeyValue *kv);
/* Which part of a cell it is. NOTHING: no cell can have this key. */
enum cell_part etcd_key_parse_cell(char name[STILE_NAME_MAX + 1], const struct etcd *etcd,
                                   const ProtobufCBinaryData *key);

#endif
