/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The word of a list that a mistyped one was probably meant to be. Header-only, because the command
 * uses it as well. */
#ifndef STILE_NEAREST_H
#define STILE_NEAREST_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define NEAREST_LEN 24 /* longer words have no near ones */

struct nearest {
    const char *word;
    size_t len;
    const char *best; /* NULL: none is near */
    unsigned distance;
};

static inline unsigned nearest_min(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* How many letters are missing, too many, wrong, or swapped with the next one. */
static inline unsigned nearest_distance(const char *a, size_t n, const char *b, size_t m)
{
    unsigned rows[3][NEAREST_LEN + 1];
    for (size_t k = 0; k <= m; k++)
        rows[0][k] = (unsigned)k;
    for (size_t i = 1; i <= n; i++) {
        unsigned *now = rows[i % 3], *last = rows[(i + 2) % 3], *older = rows[(i + 1) % 3];
        now[0] = (unsigned)i;
        for (size_t k = 1; k <= m; k++) {
            bool same = a[i - 1] == b[k - 1];
            now[k] = nearest_min(nearest_min(last[k], now[k - 1]) + 1, last[k - 1] + !same);
            if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1])
                now[k] = nearest_min(now[k], older[k - 2] + 1);
        }
    }
    return rows[n % 3][m];
}

/* One mistake in a short word, two in a longer one: beyond that it would be a guess. */
static inline struct nearest nearest_to(const char *word, size_t len)
{
    return (struct nearest){.word = word, .len = len, .distance = len < 6 ? 2 : 3};
}

/* The first of the nearest wins. The beginning of a word counts as one mistake. */
static inline void nearest_try(struct nearest *nearest, const char *word)
{
    size_t len = strlen(word);
    if (nearest->len < 2 || nearest->len > NEAREST_LEN || len > NEAREST_LEN)
        return;
    unsigned distance = nearest_distance(nearest->word, nearest->len, word, len);
    if (nearest->len < len && memcmp(nearest->word, word, nearest->len) == 0)
        distance = 1;
    if (distance >= nearest->distance)
        return;
    nearest->distance = distance;
    nearest->best = word;
}

#endif
