/* Names as nodes. A name is one node below the base, so what ZooKeeper can't have in a node's name
 * is written as %XX, and so is '%' itself: two names never become one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/zookeeper/zookeeper.h"

#define DIGITS 10
/* A million before the last: claims that are refused use up numbers, too. */
#define NUMBER_MAX (INT32_MAX - 1000000)

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

/* ---- dialects: whose nodes ours look like, and how those are ordered ---- */

/* As the server writes them: ten digits, of which the first becomes a sign when an int overflows.
 * Curator's readers may have a writer's number before their own. */
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

/* Curator sorts all children there are, and puts what is none of its nodes behind those. */
static const char *curator_place(const char *node)
{
    return number_behind(node, "lock-");
}

static const char *curator_rw_place(const char *node)
{
    const char *found = number_behind(node, "__WRIT__");
    return found ? found : number_behind(node, "__READ__");
}

static const char *kazoo_place(const char *node)
{
    const char *found = number_behind(node, "__lock__");
    return found ? found : number_behind(node, "__rlock__");
}

/* What others of a dialect don't know of they take for an exclusive lock. */
static const struct {
    const char *name;
    const char *head;
    const char *kinds[3];
    const char *(*place)(const char *node); /* by which it is ordered; NULL: not in line */
} dialects[] = {
    [CURATOR] = {.name = "curator",
                 .head = "_c_",
                 .kinds = {[STILE_EXCLUSIVE] = "-lock-",
                           [STILE_SHARED] = "-read-lock-",
                           [STILE_SLOTS] = "-slots-lock-"},
                 .place = curator_place},
    [CURATOR_RW] = {.name = "curator-rw",
                    .head = "_c_",
                    .kinds = {[STILE_EXCLUSIVE] = "-__WRIT__",
                              [STILE_SHARED] = "-__READ__",
                              [STILE_SLOTS] = "-slots-__WRIT__"},
                    .place = curator_rw_place},
    [KAZOO] = {.name = "kazoo",
               .head = "",
               .kinds = {[STILE_EXCLUSIVE] = "__lock__",
                         [STILE_SHARED] = "__rlock__",
                         [STILE_SLOTS] = "__slots__lock__"},
               .place = kazoo_place},
};

bool dialect_find(enum dialect *dialect, const char *name)
{
    for (size_t i = 0; i < sizeof dialects / sizeof *dialects; i++) {
        *dialect = (enum dialect)i;
        if (strcmp(dialects[i].name, name) == 0)
            return true;
    }
    return false;
}

/* ---- nodes ---- */

void guid_write(char guid[GUID_SIZE], enum dialect dialect, const uint8_t random[16])
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

enum stile_mode node_mode(const struct zoo *zoo, const char *node)
{
    const char *const *kinds = dialects[zoo->dialect].kinds;
    if (strstr(node, kinds[STILE_SHARED]))
        return STILE_SHARED;
    return strstr(node, kinds[STILE_SLOTS]) ? STILE_SLOTS : STILE_EXCLUSIVE;
}

void path_of_claim(char path[PATH_ROOM], const struct zoo *zoo, const struct claim *claim,
                   const char *guid)
{
    path_of_name(path, zoo, claim->name, claim->name_len);
    size_t n = strlen(path);
    snprintf(path + n, PATH_ROOM - n, "/%s%s%s", dialects[zoo->dialect].head, guid,
             dialects[zoo->dialect].kinds[claim->mode]);
}

/* The server counts in an int, and goes on with the smallest one there is: a node that came later
 * would then stand before all others. */
bool node_is_near_the_last(const struct zoo *zoo, const struct claim *claim, const char *guid,
                           const char *node)
{
    char path[PATH_ROOM];
    path_of_claim(path, zoo, claim, guid);
    size_t n = strlen(path);
    long number = strlen(node) > n ? strtol(node + n, NULL, 10) : -1;
    return number < 0 || number >= NUMBER_MAX;
}

/* With the server's digits, and the length before it, as in the record of a session's end. */
size_t bytes_of_claim(const struct zoo *zoo, const struct claim *claim)
{
    char path[PATH_ROOM], guid[GUID_SIZE];
    guid_write(guid, zoo->dialect, (const uint8_t[16]){0});
    path_of_claim(path, zoo, claim, guid);
    return strlen(path) + DIGITS + sizeof(int32_t);
}

/* ---- the line ---- */

static int by_place(const void *a, const void *b, void *zoo)
{
    enum dialect dialect = ((const struct zoo *)zoo)->dialect;
    return strcmp(dialects[dialect].place(*(const char *const *)a),
                  dialects[dialect].place(*(const char *const *)b));
}

enum stile_status line_sort(struct line *line, const struct zoo *zoo,
                            const struct jute_strings *children, struct stile_error *err)
{
    size_t n = children ? children->n : 0;
    *line = (struct line){.nodes = malloc((n + 1) * sizeof *line->nodes)};
    if (!line->nodes)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    for (size_t i = 0; i < n; i++) {
        enum stile_mode mode;
        if (!record_guid(&mode, children->list[i]) &&
            dialects[zoo->dialect].place(children->list[i]))
            line->nodes[line->n++] = children->list[i];
    }
    if (line->n > 1)
        qsort_r(line->nodes, line->n, sizeof *line->nodes, by_place, (void *)zoo);
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
