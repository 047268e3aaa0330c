/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Names as nodes.
 *
 * A name is one node below the base. Bytes that ZooKeeper does not accept in a node's name are
 * written as %XX, and so is '%' itself: two names never share a node.
 *
 * Below it are the claims' nodes, whose names follow the dialect, and hold records. A record keeps
 * the name locked when its holder has gone. It is a persistent node "stile-kept-<mode>-<guid>" with
 * the GUID of its claim's node; while that node exists, the record has no effect. Curator sorts it
 * behind all claims, and kazoo's locks ignore it. The record's times are on the server's clock,
 * which is the one that counts: hold_at_least runs from the record's creation, lock-delay from its
 * last change. A holder that ends abnormally makes that change, or else the first client that finds
 * its node gone. */
#include "engines/zookeeper/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "engines/zookeeper/zookeeper.h"

#define DIGITS 10
/* A million before the last: claims that are refused use up numbers, too. */
#define NUMBER_MAX  (INT32_MAX - 1000000)
#define RECORD_HEAD "stile-kept-"

/* ---- names ---- */

/* The length of a character of two or three bytes that the server accepts unescaped; else 0. It
 * refuses C1 controls, surrogates (so everything of four bytes), the private use area and the last
 * 16 code points. */
static size_t plain_multibyte(const unsigned char *s, size_t n)
{
    unsigned code;
    if (n >= 2 && s[0] >= 0xc2 && s[0] <= 0xdf && (s[1] & 0xc0) == 0x80) {
        code = (s[0] & 0x1fu) << 6 | (s[1] & 0x3fu);
        return code >= 0xa0 ? 2 : 0;
    }
    if (n >= 3 && (s[0] & 0xf0) == 0xe0 && (s[1] & 0xc0) == 0x80 && (s[2] & 0xc0) == 0x80) {
        code = (s[0] & 0xfu) << 12 | (s[1] & 0x3fu) << 6 | (s[2] & 0x3fu);
        return (code >= 0x800 && code < 0xd800) || (code >= 0xf900 && code < 0xfff0) ? 3 : 0;
    }
    return 0;
}

static size_t plain(const unsigned char *s, size_t n)
{
    if (s[0] >= 0x80)
        return plain_multibyte(s, n);
    return s[0] >= ' ' && s[0] < 0x7f && s[0] != '/' && s[0] != '%';
}

/* "." and ".." have a meaning in paths, and /zookeeper belongs to the server. */
static bool is_reserved(const struct zk *zk, const char *name, size_t len)
{
    return (len == 1 && name[0] == '.') || (len == 2 && memcmp(name, "..", 2) == 0) ||
           (!*zk->base && len == 9 && memcmp(name, "zookeeper", 9) == 0);
}

static size_t encode(char *out, const struct zk *zk, const char *name, size_t len)
{
    char *start = out;
    size_t escape_until = is_reserved(zk, name, len) ? len : 0;
    for (size_t i = 0; i < len;) {
        size_t n = i < escape_until ? 0 : plain((const unsigned char *)name + i, len - i);
        if (n) {
            memcpy(out, name + i, n);
            out += n;
            i += n;
        } else {
            out += sprintf(out, "%%%02X", (unsigned char)name[i++]);
        }
    }
    *out = '\0';
    return (size_t)(out - start);
}

void zk_path_of_name(char path[PATH_ROOM], const struct zk *zk, const char *name, size_t len)
{
    size_t n = (size_t)sprintf(path, "%s/", zk->base);
    encode(path + n, zk, name, len);
}

void zk_path_of_own(char path[PATH_ROOM], const struct zk *zk, const char *node)
{
    char user[16] = "";
    if (zk->credentials)
        snprintf(user, sizeof user, "-%08x",
                 (unsigned)fnv_add(FNV_START, zk->credentials, strcspn(zk->credentials, ":")));
    snprintf(path, PATH_ROOM, "%s/%%stile%s/%s", zk->base, user, node);
}

void zk_path_of_history(char path[PATH_ROOM], const struct zk *zk, const char *name, size_t len)
{
    char node[16];
    snprintf(node, sizeof node, "last-%03x", (unsigned)fnv_add(FNV_START, name, len) & 0xfff);
    zk_path_of_own(path, zk, node);
}

unsigned zk_shard_of_cell(const char *key, size_t len)
{
    return (unsigned)fnv_add(FNV_START, key, len) & 0xff;
}

void zk_path_of_cell(char path[PATH_ROOM], const struct zk *zk, const char *key, size_t len)
{
    zk_path_of_own(path, zk, CELLS_NODE);
    size_t n = strlen(path);
    n += (size_t)sprintf(path + n, "/%02x/", zk_shard_of_cell(key, len));
    encode(path + n, zk, key, len);
}

static bool decode(char *out, const char *text)
{
    for (; *text; text++) {
        unsigned byte;
        if (*text != '%') {
            *out++ = *text;
            continue;
        }
        if (!text[1] || !text[2] || sscanf(text + 1, "%2X", &byte) != 1 || byte == 0)
            return false;
        *out++ = (char)byte;
        text += 2;
    }
    *out = '\0';
    return true;
}

bool zk_name_of_child(char name[PATH_ROOM], const struct zk *zk, const char *child)
{
    char again[3 * STILE_NAME_MAX + 1];
    if (strlen(child) > 3 * STILE_NAME_MAX || !decode(name, child))
        return false;
    size_t len = strlen(name);
    if (len == 0 || len > STILE_NAME_MAX)
        return false;
    encode(again, zk, name, len);
    return strcmp(again, child) == 0;
}

/* ---- dialects: whose nodes ours look like, and how they are ordered ---- */

/* A sequence number as the server writes it: ten digits, the first of which becomes a sign when the
 * int overflows. Curator's readers may have a writer's number before their own. */
static const char *number_at(const char *text)
{
    size_t sign = *text == '-', n = strspn(text + sign, "0123456789");
    return sign + n >= DIGITS && !text[sign + n] ? text : NULL;
}

static const char *behind_last(const char *node, const char *word)
{
    const char *found = NULL;
    for (const char *at = node; (at = strstr(at, word)); at++)
        found = at + strlen(word);
    return found;
}

static const char *number_behind(const char *node, const char *word)
{
    const char *found = behind_last(node, word);
    return found ? number_at(found) : NULL;
}

/* Curator sorts all children, and puts foreign nodes behind its own. */
static const char *curator_sequence(const char *node)
{
    return number_behind(node, "lock-");
}

static const char *curator_rw_sequence(const char *node)
{
    const char *found = number_behind(node, "__WRIT__");
    return found ? found : number_behind(node, "__READ__");
}

/* LeaderLatch sorts its participants by the text behind "latch-". */
static const char *curator_latch_sequence(const char *node)
{
    return number_behind(node, "latch-");
}

static const char *kazoo_sequence(const char *node)
{
    const char *found = number_behind(node, "__lock__");
    return found ? found : number_behind(node, "__rlock__");
}

/* Other clients of a dialect take kinds they do not know for exclusive locks. */
static const struct {
    const char *name;
    const char *head;
    const char *kinds[3];
    const char *(*sequence)(const char *node); /* its order in the queue; NULL: no claim */
    bool names_by_data; /* a node's data is the name of its participant, and nothing else */
} dialects[] = {
    [CURATOR] = {.name = "curator",
                 .head = "_c_",
                 .kinds = {[STILE_EXCLUSIVE] = "-lock-",
                           [STILE_SHARED] = "-read-lock-",
                           [STILE_SLOTS] = "-slots-lock-"},
                 .sequence = curator_sequence},
    [CURATOR_RW] = {.name = "curator-rw",
                    .head = "_c_",
                    .kinds = {[STILE_EXCLUSIVE] = "-__WRIT__",
                              [STILE_SHARED] = "-__READ__",
                              [STILE_SLOTS] = "-slots-__WRIT__"},
                    .sequence = curator_rw_sequence},
    [CURATOR_LATCH] = {.name = "curator-latch",
                       .head = "_c_",
                       .kinds = {[STILE_EXCLUSIVE] = "-latch-",
                                 [STILE_SHARED] = "-read-latch-",
                                 [STILE_SLOTS] = "-slots-latch-"},
                       .sequence = curator_latch_sequence,
                       .names_by_data = true},
    [KAZOO] = {.name = "kazoo",
               .head = "",
               .kinds = {[STILE_EXCLUSIVE] = "__lock__",
                         [STILE_SHARED] = "__rlock__",
                         [STILE_SLOTS] = "__slots__lock__"},
               .sequence = kazoo_sequence,
               .names_by_data = true},
};

bool zk_dialect_find(enum dialect *dialect, const char *name)
{
    for (size_t i = 0; i < sizeof dialects / sizeof *dialects; i++) {
        *dialect = (enum dialect)i;
        if (strcmp(dialects[i].name, name) == 0)
            return true;
    }
    return false;
}

bool zk_dialect_names_by_data(enum dialect dialect)
{
    return dialects[dialect].names_by_data;
}

/* ---- nodes ---- */

void zk_guid_write(char guid[GUID_SIZE], enum dialect dialect, const uint8_t random[16])
{
    char *out = guid;
    for (size_t i = 0; i < 16; i++) {
        uint8_t byte = i == 6 ? (random[i] & 0x0f) | 0x40 : random[i];
        byte = i == 8 ? (byte & 0x3f) | 0x80 : byte;
        if (dialect != KAZOO && (i == 4 || i == 6 || i == 8 || i == 10))
            *out++ = '-';
        out += sprintf(out, "%02x", byte);
    }
}

enum stile_mode zk_node_mode(const struct zk *zk, const char *node)
{
    const char *const *kinds = dialects[zk->dialect].kinds;
    if (strstr(node, kinds[STILE_SHARED]))
        return STILE_SHARED;
    return strstr(node, kinds[STILE_SLOTS]) ? STILE_SLOTS : STILE_EXCLUSIVE;
}

bool zk_node_guid(char guid[GUID_SIZE], const struct zk *zk, const char *node)
{
    const char *head = dialects[zk->dialect].head;
    size_t skip = strlen(head), n = zk->dialect == KAZOO ? 32 : GUID_SIZE - 1;
    if (strncmp(node, head, skip) != 0 || strspn(node + skip, "0123456789abcdef-") < n ||
        !dialects[zk->dialect].sequence(node))
        return false;
    memcpy(guid, node + skip, n);
    guid[n] = '\0';
    return true;
}

void zk_path_of_claim(char path[PATH_ROOM], const struct zk *zk, const struct claim *claim,
                      const char *guid)
{
    zk_path_of_name(path, zk, claim->name, claim->name_len);
    size_t n = strlen(path);
    snprintf(path + n, PATH_ROOM - n, "/%s%s%s", dialects[zk->dialect].head, guid,
             dialects[zk->dialect].kinds[claim->mode]);
}

/* The server counts in an int that overflows to the smallest value: a later node would then sort
 * before all others. */
bool zk_node_numbers_run_out(const struct zk *zk, const struct claim *claim, const char *guid,
                             const char *node)
{
    char path[PATH_ROOM];
    zk_path_of_claim(path, zk, claim, guid);
    size_t n = strlen(path);
    long number = strlen(node) > n ? strtol(node + n, NULL, 10) : -1;
    return number < 0 || number >= NUMBER_MAX;
}

/* With the server's digits and the length field before it. */
size_t zk_path_bytes_of_claim(const struct zk *zk, const struct claim *claim)
{
    char path[PATH_ROOM], guid[GUID_SIZE];
    zk_guid_write(guid, zk->dialect, (const uint8_t[16]){0});
    zk_path_of_claim(path, zk, claim, guid);
    return strlen(path) + DIGITS + sizeof(int32_t);
}

/* ---- hold records ---- */

static const char record_letters[] = {
    [STILE_EXCLUSIVE] = 'x', [STILE_SHARED] = 's', [STILE_SLOTS] = 'n', '\0'};

const char *zk_record_guid(enum stile_mode *mode, const char *node)
{
    size_t head = strlen(RECORD_HEAD);
    const char *letter = strncmp(node, RECORD_HEAD, head) == 0 && node[head]
                             ? strchr(record_letters, node[head])
                             : NULL;
    if (!letter || node[head + 1] != '-' || !node[head + 2])
        return NULL;
    *mode = (enum stile_mode)(letter - record_letters);
    return node + head + 2;
}

bool zk_record_is_orphan(const struct node_list *list, const char *guid)
{
    for (size_t i = 0; i < list->n; i++) {
        if (strstr(list->nodes[i], guid))
            return false;
    }
    return true;
}

void zk_path_of_record(char path[PATH_ROOM], const struct zk *zk, const struct claim *claim,
                       const char *guid)
{
    zk_path_of_name(path, zk, claim->name, claim->name_len);
    size_t n = strlen(path);
    snprintf(path + n, PATH_ROOM - n, "/" RECORD_HEAD "%c-%s", record_letters[claim->mode], guid);
}

void zk_record_write(char data[INFO_MAX], const struct zk *zk, const struct record *record)
{
    snprintf(data, INFO_MAX, "%ld %s %lld/%lld %llu %s", zk->pid, zk->host,
             (long long)record->hold_ms, (long long)record->delay_ms,
             (unsigned long long)record->token, zk->command);
}

bool zk_record_read(struct record *record, char *data)
{
    long long pid, hold_ms, delay_ms;
    unsigned long long token;
    int host = 0, host_end = 0, command = 0;
    *record = (struct record){.host = "", .command = ""};
    if (sscanf(data, "%lld %n%*s%n %lld/%lld %llu %n", &pid, &host, &host_end, &hold_ms, &delay_ms,
               &token, &command) != 4 ||
        !command || hold_ms < 0 || delay_ms < 0)
        return false;
    data[host_end] = '\0';
    *record = (struct record){.hold_ms = hold_ms,
                              .delay_ms = delay_ms,
                              .token = token,
                              .pid = pid,
                              .host = data + host,
                              .command = data + command};
    return true;
}

bool zk_record_is_unmarked(const struct record *record, const struct jute_stat *stat)
{
    return record->delay_ms > 0 && stat->version == 0;
}

int64_t zk_record_until_ms(const struct record *record, const struct jute_stat *stat,
                           int64_t now_ms)
{
    int64_t hold_ms = stat->ctime + record->hold_ms;
    int64_t delay_ms =
        record->delay_ms + (zk_record_is_unmarked(record, stat) ? now_ms : stat->mtime);
    return record->delay_ms > 0 && delay_ms > hold_ms ? delay_ms : hold_ms;
}

/* ---- the nodes in a queue ---- */

struct placed {
    const char *sequence, *node;
};

static int by_sequence(const void *a, const void *b)
{
    return strcmp(((const struct placed *)a)->sequence, ((const struct placed *)b)->sequence);
}

/* Each is looked through once, not in every comparison: there may be 10,000. */
static size_t find_places(struct placed *placed, const struct zk *zk,
                          const struct jute_strings *children)
{
    size_t n = 0;
    for (size_t i = 0; children && i < children->n; i++) {
        enum stile_mode mode;
        const char *node = children->list[i];
        const char *sequence = dialects[zk->dialect].sequence(node);
        if (sequence && !zk_record_guid(&mode, node))
            placed[n++] = (struct placed){.sequence = sequence, .node = node};
    }
    return n;
}

enum stile_status zk_nodes_sort(struct node_list *list, const struct zk *zk,
                                const struct jute_strings *children, struct stile_error *err)
{
    size_t room = (children ? children->n : 0) + 1;
    struct placed *placed = malloc(room * sizeof *placed);
    *list = (struct node_list){.nodes = malloc(room * (2 * sizeof *list->nodes + 1))};
    if (!placed || !list->nodes) {
        free(placed);
        free(list->nodes);
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    }
    list->sequences = list->nodes + room;
    list->modes = (signed char *)(list->sequences + room);
    memset(list->modes, -1, room);
    list->n = find_places(placed, zk, children);
    if (list->n > 1)
        qsort(placed, list->n, sizeof *placed, by_sequence);
    for (size_t i = 0; i < list->n; i++) {
        list->nodes[i] = placed[i].node;
        list->sequences[i] = placed[i].sequence;
    }
    free(placed);
    return STILE_OK;
}

void zk_nodes_free(struct node_list *list)
{
    free(list->nodes);
}

enum stile_mode zk_nodes_mode(const struct node_list *list, const struct zk *zk, size_t i)
{
    if (list->modes[i] < 0)
        list->modes[i] = (signed char)zk_node_mode(zk, list->nodes[i]);
    return (enum stile_mode)list->modes[i];
}

static size_t first_at(const struct node_list *list, const char *sequence)
{
    size_t low = 0, high = list->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(list->sequences[middle], sequence) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

size_t zk_nodes_find(const struct node_list *list, const struct zk *zk, const char *node)
{
    const char *sequence = dialects[zk->dialect].sequence(node);
    size_t i = sequence ? first_at(list, sequence) : list->n;
    while (i < list->n && strcmp(list->sequences[i], sequence) == 0) {
        if (strcmp(list->nodes[i], node) == 0)
            return i;
        i++;
    }
    return list->n;
}
