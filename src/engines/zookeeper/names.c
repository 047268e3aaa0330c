/* Names as nodes. A name is one node below the base, so what ZooKeeper can't have in a node's name
 * is written as %XX, and so is '%' itself: two names never become one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/zookeeper/zookeeper.h"

#define DIGITS 10

/* ---- what the server takes ---- */

/* The length of a character of two or three bytes that it takes as it is; else 0. It refuses C1
 * controls, surrogates (so everything of four bytes), the private area and the last 16. */
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

/* "." and ".." mean something in a path, and the server keeps /zookeeper for itself. */
static bool is_reserved(const struct zoo *zoo, const char *name, size_t len)
{
    return (len == 1 && name[0] == '.') || (len == 2 && memcmp(name, "..", 2) == 0) ||
           (!*zoo->base && len == 9 && memcmp(name, "zookeeper", 9) == 0);
}

static size_t encode(char *out, const struct zoo *zoo, const char *name, size_t len)
{
    char *start = out;
    size_t escape_until = is_reserved(zoo, name, len) ? len : 0;
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

void path_of_name(char path[PATH_ROOM], const struct zoo *zoo, const char *name, size_t len)
{
    size_t n = (size_t)sprintf(path, "%s/", zoo->base);
    encode(path + n, zoo, name, len);
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

bool name_of_child(char name[PATH_ROOM], const struct zoo *zoo, const char *child)
{
    char again[3 * STILE_NAME_MAX + 1];
    if (strlen(child) > 3 * STILE_NAME_MAX || !decode(name, child))
        return false;
    size_t len = strlen(name);
    if (len == 0 || len > STILE_NAME_MAX)
        return false;
    encode(again, zoo, name, len);
    return strcmp(again, child) == 0;
}

/* ---- nodes ---- */

void guid_write(char guid[GUID_SIZE], enum dialect dialect, const uint8_t random[16])
{
    char *out = guid;
    for (size_t i = 0; i < 16; i++) {
        uint8_t byte = i == 6 ? (random[i] & 0x0f) | 0x40 : random[i];
        byte = i == 8 ? (byte & 0x3f) | 0x80 : byte;
        if (dialect == CURATOR && (i == 4 || i == 6 || i == 8 || i == 10))
            *out++ = '-';
        out += sprintf(out, "%02x", byte);
    }
}

/* What others of the dialect don't know of they take for an exclusive lock; but a reader is one for
 * kazoo's ReadLock and WriteLock. */
static const char *const kinds[][3] = {
    [CURATOR] = {[STILE_EXCLUSIVE] = "-lock-",
                 [STILE_SHARED] = "-read-lock-",
                 [STILE_SLOTS] = "-slots-lock-"},
    [KAZOO] = {[STILE_EXCLUSIVE] = "__lock__",
               [STILE_SHARED] = "__rlock__",
               [STILE_SLOTS] = "__slots__lock__"},
};

enum stile_mode node_mode(const struct zoo *zoo, const char *node)
{
    if (strstr(node, kinds[zoo->dialect][STILE_SHARED]))
        return STILE_SHARED;
    return strstr(node, kinds[zoo->dialect][STILE_SLOTS]) ? STILE_SLOTS : STILE_EXCLUSIVE;
}

void path_of_claim(char path[PATH_ROOM], const struct zoo *zoo, const struct claim *claim,
                   const char *guid)
{
    path_of_name(path, zoo, claim->name, claim->name_len);
    size_t n = strlen(path);
    snprintf(path + n, PATH_ROOM - n, "/%s%s%s", zoo->dialect == CURATOR ? "_c_" : "", guid,
             kinds[zoo->dialect][claim->mode]);
}

/* ---- the line ---- */

/* Curator's InterProcessMutex sorts all children there are. */
static const char *curator_place(const char *node)
{
    const char *found = NULL;
    for (const char *at = node; (at = strstr(at, "lock-")); at += 5)
        found = at + 5;
    return found ? found : node;
}

/* kazoo's locks: only what ends so stands in line; else NULL. */
static const char *kazoo_place(const char *node)
{
    size_t len = strlen(node);
    if (len < DIGITS + 9)
        return NULL;
    const char *digits = node + len - DIGITS;
    bool stands = memcmp(digits - 8, "__lock__", 8) == 0 || memcmp(digits - 9, "__rlock__", 9) == 0;
    return stands && strspn(digits, "0123456789") == DIGITS ? digits : NULL;
}

static int by_curator(const void *a, const void *b)
{
    return strcmp(curator_place(*(const char *const *)a), curator_place(*(const char *const *)b));
}

static int by_kazoo(const void *a, const void *b)
{
    return strcmp(kazoo_place(*(const char *const *)a), kazoo_place(*(const char *const *)b));
}

enum stile_status line_sort(struct line *line, const struct zoo *zoo,
                            const struct String_vector *children, struct stile_error *err)
{
    size_t n = children && children->count > 0 ? (size_t)children->count : 0;
    *line = (struct line){.nodes = malloc((n + 1) * sizeof *line->nodes)};
    if (!line->nodes)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    for (size_t i = 0; i < n; i++) {
        if (zoo->dialect == CURATOR || kazoo_place(children->data[i]))
            line->nodes[line->n++] = children->data[i];
    }
    if (line->n > 1)
        qsort(line->nodes, line->n, sizeof *line->nodes,
              zoo->dialect == CURATOR ? by_curator : by_kazoo);
    return STILE_OK;
}

void line_free(struct line *line)
{
    free(line->nodes);
}

size_t line_find(const struct line *line, const char *node)
{
    size_t i = 0;
    while (i < line->n && strcmp(line->nodes[i], node) != 0)
        i++;
    return i;
}
