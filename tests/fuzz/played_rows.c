/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz/played_rows.h"

#define ROWS_MAX    4
#define COLUMNS_MAX 32

/* Answers of statements, and what looks like one. */
static const char *const values[] = {"t",
                                     "1",
                                     "g 5",
                                     "0",
                                     "f",
                                     "",
                                     "x",
                                     "5",
                                     "h 200",
                                     "n",
                                     "g 7 w",
                                     "g",
                                     "h",
                                     "w 3 1",
                                     "b 100 2",
                                     "-1",
                                     "9223372036854775807",
                                     "9223372036854775808",
                                     "-9223372036854775808",
                                     "99999999999999999999999999",
                                     "1e308",
                                     "NaN",
                                     "0 1 5 a:b",
                                     "1 9 7 ",
                                     "3 18446744073709551615 9223372036854775807 c",
                                     "0 1 5",
                                     "stile+:12@host command",
                                     "stile:12@host",
                                     "\\x76616c7565",
                                     "\\x7",
                                     "exclusive",
                                     "shared",
                                     "slots",
                                     "2024-01-01 00:00:00",
                                     "78",
                                     "$",
                                     "a%00b"};

char *played_value(void)
{
    size_t len;
    unsigned i = played_pick(48), n = sizeof values / sizeof *values;
    char *copy;
    if (i < n) {
        copy = strdup(values[i]);
    } else if (i < n + 5) {
        return NULL;
    } else {
        const uint8_t *bytes = played_bytes(&len, i == 47 ? 255 : 24);
        copy = strndup((const char *)bytes, len);
    }
    MUST(copy);
    return copy;
}

static char *copy_of(const char *text)
{
    char *copy = text ? strdup(text) : NULL;
    MUST(copy || !text);
    return copy;
}

static unsigned count(const char *const *row)
{
    unsigned n = 0;
    while (row[n])
        n++;
    return n;
}

static char **row_new(unsigned columns, const char *const *row)
{
    char **made = malloc(columns ? columns * sizeof *made : 1);
    MUST(made);
    for (unsigned i = 0; i < columns; i++)
        made[i] = row ? copy_of(row[i]) : played_value();
    return made;
}

void played_rows_fill(struct played_rows *rows, const char *const *row)
{
    unsigned form = played_pick(16);
    bool expected = row && form != 15;
    if (expected) {
        rows->rows = row[0] != NULL;
        rows->columns = row[0] ? count(row) : 1;
    } else {
        rows->rows = form < 10 ? 1 : played_pick(ROWS_MAX);
        rows->columns = form == 14 ? 0 : 1 + played_pick(COLUMNS_MAX);
    }
    rows->values = calloc(rows->rows + 1, sizeof *rows->values);
    MUST(rows->values);
    for (unsigned i = 0; i < rows->rows; i++)
        rows->values[i] = row_new(rows->columns, expected ? row : NULL);
}

void played_rows_free(struct played_rows *rows)
{
    for (unsigned i = 0; i < rows->rows; i++) {
        for (unsigned j = 0; j < rows->columns; j++)
            free(rows->values[i][j]);
        free(rows->values[i]);
    }
    free(rows->values);
}
