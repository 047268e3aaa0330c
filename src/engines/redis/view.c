#include "engines/redis/view.h"

#include <stdlib.h>
#include <string.h>

#define NAMES_MAX 1000000

/* ---- one name ---- */

enum stile_status view_init(struct view *view, const char *name, size_t most,
                            struct stile_error *err)
{
    *view = (struct view){.info.name = name};
    view->claims = calloc(most, sizeof *view->claims);
    view->texts = calloc(most, sizeof *view->texts);
    if (!view->claims || !view->texts)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    return STILE_OK;
}

void view_free(struct view *view)
{
    for (size_t i = 0; i < view->n_texts; i++)
        free(view->texts[i]);
    free(view->texts);
    free(view->claims);
}

char *view_keep(struct view *view, const char *text)
{
    static char empty[1];
    char *copy = strdup(text ? text : "");
    if (!copy)
        return empty;
    view->texts[view->n_texts++] = copy;
    return copy;
}

uint64_t view_number(const char *text)
{
    return text ? strtoull(text, NULL, 10) : 0;
}

int64_t view_between(uint64_t earlier_ms, uint64_t later_ms)
{
    uint64_t ms = later_ms > earlier_ms ? later_ms - earlier_ms : 0;
    return ms < INT64_MAX ? (int64_t)ms : INT64_MAX;
}

uint64_t view_take_number(char **text)
{
    char *end;
    uint64_t value = strtoull(*text, &end, 10);
    *text = *end == ' ' ? end + 1 : end;
    return value;
}

const char *view_take_word(char **text)
{
    char *word = *text;
    size_t len = strcspn(word, " ");
    *text = word[len] ? word + len + 1 : word + len;
    word[len] = '\0';
    return word;
}

void view_take_who(struct stile_claim_info *claim, char *text)
{
    claim->pid = (int64_t)view_take_number(&text);
    claim->host = view_take_word(&text);
    claim->command = text;
}

static uint64_t mix(uint64_t sum, const char *text)
{
    for (; text && *text; text++)
        sum = (sum ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return sum * 31 + 1;
}

uint64_t view_fingerprint(const struct stile_info *info)
{
    uint64_t sum = info->token + 1;
    for (size_t i = 0; i < info->holders + info->waiters; i++)
        sum = mix(sum + info->claims[i].held, info->claims[i].owner);
    return sum;
}

/* ---- names ---- */

bool names_add(struct names *names, const char *name, size_t len)
{
    if (names->n == names->cap) {
        size_t cap = names->cap ? 2 * names->cap : 64;
        char **grown = cap > NAMES_MAX ? NULL : realloc(names->names, cap * sizeof *grown);
        if (!grown)
            return false;
        names->names = grown;
        names->cap = cap;
    }
    char *copy = strndup(name, len);
    if (copy)
        names->names[names->n++] = copy;
    return copy != NULL;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* SCAN may tell a key twice. */
void names_sort(struct names *names)
{
    size_t n = 0;
    if (names->n > 1)
        qsort(names->names, names->n, sizeof *names->names, by_bytes);
    for (size_t i = 0; i < names->n; i++) {
        if (n > 0 && strcmp(names->names[n - 1], names->names[i]) == 0)
            free(names->names[i]);
        else
            names->names[n++] = names->names[i];
    }
    names->n = n;
}

void names_free(struct names *names)
{
    for (size_t i = 0; i < names->n; i++)
        free(names->names[i]);
    free(names->names);
}

void names_pattern(char *pattern, const char *prefix, const char *name)
{
    char *at = pattern;
    for (const char *part = prefix; part; part = part == prefix ? name : NULL) {
        for (const char *c = part; *c; c++) {
            if (strchr("*?[]\\", *c))
                *at++ = '\\';
            *at++ = *c;
        }
    }
    *at++ = '*';
    *at = '\0';
}
