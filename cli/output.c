/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What the verbs print: tables, JSON, and text that other users chose.
 *
 * Names and command lines come from anywhere, so they must neither move the cursor nor break the
 * columns. JSON is written as it comes; nothing is kept but whether a comma is due. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli.h"

/* ---- text of other users on a terminal ---- */

char *text_escape(const char *s)
{
    static const size_t longest = 4; /* \x1b for each byte */
    char *out = must_alloc(malloc(strlen(s) * longest + 1)), *to = out;
    while (*s != '\0') {
        uint32_t code = 0;
        size_t len = text_decode(&code, s);
        if (len > 0 && !text_is_unsafe(code)) {
            memcpy(to, s, len);
            to += len;
            s += len;
            continue;
        }
        for (size_t i = 0; i < (len > 0 ? len : 1); i++)
            to += sprintf(to, "\\x%02x", (unsigned char)*s++);
    }
    *to = '\0';
    return out;
}

/* ---- tables ---- */

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

/* ---- JSON ---- */

static void quoted(FILE *out, const char *text)
{
    putc('"', out);
    while (*text != '\0') {
        uint32_t code = 0;
        size_t len = text_decode(&code, text);
        if (len == 0)
            fputs("\\ufffd", out);
        else if (code == '"' || code == '\\')
            fprintf(out, "\\%c", (int)code);
        else if (code < 0x20 || (code >= 0x7f && code < 0xa0))
            fprintf(out, "\\u%04" PRIx32, code);
        else
            fwrite(text, 1, len, out);
        text += len > 0 ? len : 1;
    }
    putc('"', out);
}

static void begin_member(struct json *json, const char *key)
{
    if (json->comma)
        putc(',', json->out);
    json->comma = true;
    if (key != NULL) {
        quoted(json->out, key);
        putc(':', json->out);
    }
}

void json_open(struct json *json, const char *key, char bracket)
{
    begin_member(json, key);
    putc(bracket, json->out);
    json->comma = false;
}

void json_close(struct json *json, char bracket)
{
    putc(bracket, json->out);
    json->comma = true;
}

static bool is_utf8(const char *text)
{
    uint32_t code;
    size_t len;
    while ((len = text_decode(&code, text)) > 0)
        text += len;
    return *text == '\0';
}

void json_text(struct json *json, const char *key, const char *text)
{
    begin_member(json, key);
    quoted(json->out, text);
    if (key == NULL || is_utf8(text))
        return;
    fprintf(json->out, ",\"%s_hex\":\"", key);
    for (; *text != '\0'; text++)
        fprintf(json->out, "%02x", (unsigned char)*text);
    putc('"', json->out);
}

void json_int(struct json *json, const char *key, int64_t number)
{
    begin_member(json, key);
    fprintf(json->out, "%" PRId64, number);
}

void json_uint(struct json *json, const char *key, uint64_t number)
{
    begin_member(json, key);
    fprintf(json->out, "%" PRIu64, number);
}

void json_bool(struct json *json, const char *key, bool value)
{
    begin_member(json, key);
    fputs(value ? "true" : "false", json->out);
}

void json_null(struct json *json, const char *key)
{
    begin_member(json, key);
    fputs("null", json->out);
}

/* ---- a lock, as a table row or as JSON ---- */

const char *info_mode(enum stile_mode mode)
{
    switch (mode) {
    case STILE_EXCLUSIVE:
        return "exclusive";
    case STILE_SHARED:
        return "shared";
    case STILE_SLOTS:
        return "slots";
    }
    return "?";
}

const char *info_age(char out[DURATION_TEXT_MAX], const struct stile_claim_info *claim)
{
    return claim->age_ms < 0 ? "" : duration_format(out, claim->age_ms);
}

static int kept_text(char **text, const struct stile_claim_info *claim)
{
    char left[DURATION_TEXT_MAX];
    duration_format(left, claim->expires_ms);
    if (claim->pid == 0)
        return asprintf(text, "nobody, kept for %s more", left);
    return asprintf(text, "nobody, kept for %s more by %" PRId64 "@%s%s%s", left, claim->pid,
                    claim->host, claim->command[0] != '\0' ? " " : "", claim->command);
}

char *info_holder(const struct stile_claim_info *claim)
{
    char *text = NULL;
    int len;
    if (claim->ghost) {
        len = kept_text(&text, claim);
    } else if (claim->pid != 0) {
        len = asprintf(&text, "%" PRId64 "@%s %s%s%s", claim->pid, claim->host, claim->command,
                       claim->proclaimed[0] != '\0' ? " as " : "", claim->proclaimed);
    } else {
        const char *holder = claim->host[0] != '\0'         ? claim->host
                             : claim->proclaimed[0] != '\0' ? claim->proclaimed
                                                            : claim->owner;
        len = asprintf(&text, "%s %s", holder, claim->command);
    }
    return must_alloc(len < 0 ? NULL : text);
}

static void claim_json(struct json *json, const struct stile_claim_info *claim)
{
    json_open(json, NULL, '{');
    json_text(json, "mode", info_mode(claim->mode));
    if (claim->held)
        json_bool(json, "ghost", claim->ghost);
    if (claim->token != 0)
        json_uint(json, "token", claim->token);
    if (claim->age_ms < 0)
        json_null(json, "age_ms");
    else
        json_int(json, "age_ms", claim->age_ms);
    if (claim->expires_ms == STILE_NO_DEADLINE)
        json_null(json, "expires_ms");
    else
        json_int(json, "expires_ms", claim->expires_ms);
    json_int(json, "pid", claim->pid);
    json_text(json, "host", claim->host);
    json_text(json, "command", claim->command);
    json_text(json, "proclaimed", claim->proclaimed);
    json_close(json, '}');
}

/* ---- the last holder ---- */

static void json_time(struct json *json, const char *key, int64_t ms)
{
    if (ms > 0)
        json_int(json, key, ms);
    else
        json_null(json, key);
}

void info_json_last(struct json *json, const struct stile_last_holder *last)
{
    if (last == NULL) {
        json_null(json, "last");
        return;
    }
    json_open(json, "last", '{');
    json_text(json, "host", last->host);
    json_int(json, "pid", last->pid);
    json_text(json, "command", last->command);
    if (last->token != 0)
        json_uint(json, "token", last->token);
    json_time(json, "from_ms", last->from_ms);
    json_time(json, "until_ms", last->until_ms);
    if (last->exit_code >= 0)
        json_int(json, "exit_code", last->exit_code);
    else
        json_null(json, "exit_code");
    json_close(json, '}');
}

#define TIME_TEXT_MAX 64

/* Unix milliseconds as local time; "?" where no calendar has them. Of the same day as `day`: the
 * time alone. */
static const char *time_text(char text[TIME_TEXT_MAX], int64_t ms, int64_t day)
{
    time_t seconds = (time_t)(ms / 1000), other = (time_t)(day / 1000);
    struct tm tm, day_tm;
    if (localtime_r(&seconds, &tm) == NULL || localtime_r(&other, &day_tm) == NULL)
        return "?";
    bool same = day != 0 && tm.tm_year == day_tm.tm_year && tm.tm_yday == day_tm.tm_yday;
    bool fits = strftime(text, TIME_TEXT_MAX, same ? "%H:%M:%S" : "%Y-%m-%d %H:%M:%S", &tm) > 0;
    return fits ? text : "?";
}

void info_print_last(const struct stile_last_holder *last)
{
    char from[TIME_TEXT_MAX], until[TIME_TEXT_MAX];
    char *host = text_escape(last->host), *command = text_escape(last->command);
    printf("last: %s pid %" PRId64 " (%s), %s", host, last->pid, command,
           time_text(from, last->from_ms, 0));
    if (last->until_ms == 0)
        printf(", end not recorded");
    else
        printf(" to %s", time_text(until, last->until_ms, last->from_ms));
    if (last->exit_code >= 0)
        printf(", exit %d", last->exit_code);
    putchar('\n');
    free(host);
    free(command);
}

void info_json_members(struct json *json, const struct stile_info *info)
{
    json_text(json, "name", info->name);
    json_uint(json, "token", info->token);
    json_open(json, "holders", '[');
    for (size_t i = 0; i < info->holders; i++)
        claim_json(json, &info->claims[i]);
    json_close(json, ']');
    json_open(json, "waiters", '[');
    for (size_t i = 0; i < info->waiters; i++)
        claim_json(json, &info->claims[info->holders + i]);
    json_close(json, ']');
}

void info_json(struct json *json, const char *key, const struct stile_info *info)
{
    json_open(json, key, '{');
    info_json_members(json, info);
    json_close(json, '}');
}
