/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Text for a terminal of 80 columns. */
#include <string.h>

#include "cli.h"

#define WIDTH 80

/* A blank inside brackets ends no word: an option in a usage line stays with its value, and a
 * default with what announces it. */
static size_t word_length(const char *text)
{
    size_t len = 0;
    int depth = 0;
    for (; text[len] != '\0' && text[len] != '\n' && (depth > 0 || text[len] != ' '); len++)
        depth += (text[len] == '[' || text[len] == '(') - (text[len] == ']' || text[len] == ')');
    return len;
}

static size_t break_line(size_t indent)
{
    printf("\n%*s", (int)indent, "");
    return indent;
}

void print_wrapped(const char *text, size_t column, size_t indent)
{
    while (*text != '\0') {
        if (*text == '\n') {
            column = break_line(indent);
            text++;
            continue;
        }
        size_t blanks = strspn(text, " "), len = word_length(text + blanks);
        if (column + blanks + len > WIDTH && column > indent)
            column = break_line(indent);
        else
            column += (size_t)printf("%*s", (int)blanks, "");
        column += (size_t)printf("%.*s", (int)len, text + blanks);
        text += blanks + len;
    }
    putchar('\n');
}
