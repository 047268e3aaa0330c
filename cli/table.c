/* Tables: columns as wide as their widest cell, two blanks between them. */
#include "cli.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void table_start(struct table *table, const char *const *heads)
{
    *table = (struct table){.heads = heads};
    while (heads[table->columns] != NULL)
        table->columns++;
    for (size_t i = 0; i < table->columns; i++)
        table_add(table, heads[i]);
}

void table_add(struct table *table, const char *text)
{
    if (table->n_cells == table->room) {
        table->room = table->room == 0 ? 64 : table->room * 2;
        table->cells = must_alloc(realloc(table->cells, table->room * sizeof *table->cells));
    }
    table->cells[table->n_cells++] = text_escape(text[0] == '\0' ? "-" : text);
}

void table_addf(struct table *table, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    table_add(table, text);
}

static size_t column_width(const struct table *table, size_t column)
{
    size_t width = 0;
    for (size_t i = column; i < table->n_cells; i += table->columns) {
        size_t columns = text_columns(table->cells[i]);
        if (columns > width)
            width = columns;
    }
    return width;
}

void table_finish(struct table *table, FILE *out)
{
    size_t *widths = must_alloc(calloc(table->columns, sizeof *widths));
    for (size_t c = 0; c < table->columns; c++)
        widths[c] = column_width(table, c);
    for (size_t i = 0; i < table->n_cells; i++) {
        size_t c = i % table->columns;
        bool last = c + 1 == table->columns;
        size_t pad = last ? 0 : widths[c] + 2 - text_columns(table->cells[i]);
        if (out != NULL)
            fprintf(out, "%s%*s%s", table->cells[i], (int)pad, "", last ? "\n" : "");
        free(table->cells[i]);
    }
    free(widths);
    free(table->cells);
}
