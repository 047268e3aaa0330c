/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/dynamodb/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"

/* ---- reading ---- */

struct parser {
    char *at, *end;
    struct json *values;
    size_t n, cap;
    unsigned depth;
};

static bool parse_value(struct parser *p, struct json *value);

static void skip_space(struct parser *p)
{
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\t' || *p->at == '\n' || *p->at == '\r'))
        p->at++;
}

static bool take(struct parser *p, char c)
{
    skip_space(p);
    if (p->at == p->end || *p->at != c)
        return false;
    p->at++;
    return true;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool read_hex4(struct parser *p, uint32_t *code)
{
    if (p->end - p->at < 4)
        return false;
    *code = 0;
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(*p->at++);
        if (digit < 0)
            return false;
        *code = *code << 4 | (uint32_t)digit;
    }
    return true;
}

static char *put_utf8(char *to, uint32_t code)
{
    if (code < 0x80) {
        *to++ = (char)code;
        return to;
    }
    if (code < 0x800) {
        *to++ = (char)(0xc0 | code >> 6);
    } else {
        if (code < 0x10000) {
            *to++ = (char)(0xe0 | code >> 12);
        } else {
            *to++ = (char)(0xf0 | code >> 18);
            *to++ = (char)(0x80 | (code >> 12 & 0x3f));
        }
        *to++ = (char)(0x80 | (code >> 6 & 0x3f));
    }
    *to++ = (char)(0x80 | (code & 0x3f));
    return to;
}

/* No NUL: what follows it would be hidden from every comparison of the string. */
static bool unescape_unicode(struct parser *p, char **to)
{
    uint32_t code, low;
    if (!read_hex4(p, &code) || code == 0 || (code >= 0xdc00 && code < 0xe000))
        return false;
    if (code >= 0xd800 && code < 0xdc00) {
        if (p->end - p->at < 6 || *p->at++ != '\\' || *p->at++ != 'u' || !read_hex4(p, &low) ||
            low < 0xdc00 || low >= 0xe000)
            return false;
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    *to = put_utf8(*to, code);
    return true;
}

static bool unescape(struct parser *p, char **to)
{
    static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
    if (p->at == p->end)
        return false;
    char c = *p->at++;
    if (c == 'u')
        return unescape_unicode(p, to);
    const char *found = c ? strchr(from, c) : NULL;
    if (!found)
        return false;
    *(*to)++ = into[found - from];
    return true;
}

static bool copy_character(struct parser *p, char **to)
{
    size_t n = utf8_length(NULL, p->at, (size_t)(p->end - p->at));
    if (n == 0 || (unsigned char)*p->at < ' ')
        return false;
    memmove(*to, p->at, n);
    *to += n;
    p->at += n;
    return true;
}

/* In place: what is decoded is never longer. */
static bool parse_string(struct parser *p, const char **text, size_t *len)
{
    char *to = p->at;
    *text = to;
    while (p->at < p->end && *p->at != '"') {
        if (*p->at == '\\' ? (p->at++, !unescape(p, &to)) : !copy_character(p, &to))
            return false;
    }
    if (p->at == p->end)
        return false;
    p->at++;
    *to = '\0';
    *len = (size_t)(to - *text);
    return true;
}

static bool is_number(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (!strchr("0123456789+-.eE", text[i]))
            return false;
    }
    return len > 0;
}

static bool parse_literal(struct parser *p, struct json *value)
{
    char *start = p->at;
    while (p->at < p->end && !strchr(",]} \t\r\n", *p->at))
        p->at++;
    size_t len = (size_t)(p->at - start);
    if (len == 4 && memcmp(start, "null", 4) == 0) {
        value->type = JSON_NULL;
    } else if ((len == 4 && memcmp(start, "true", 4) == 0) ||
               (len == 5 && memcmp(start, "false", 5) == 0)) {
        value->type = JSON_BOOL;
        value->truth = *start == 't';
    } else {
        value->type = JSON_NUMBER;
        value->text = start;
        value->len = len;
        return is_number(start, len);
    }
    return true;
}

static struct json *new_value(struct parser *p)
{
    return p->n < p->cap ? &p->values[p->n++] : NULL;
}

static bool parse_member(struct parser *p, bool keyed, struct json **at)
{
    size_t len;
    struct json *value = new_value(p);
    if (!value)
        return false;
    if (keyed && (!take(p, '"') || !parse_string(p, &value->key, &len) || !take(p, ':')))
        return false;
    if (!parse_value(p, value))
        return false;
    *at = value;
    return true;
}

static bool parse_members(struct parser *p, struct json *parent, bool keyed)
{
    char closing = keyed ? '}' : ']';
    struct json **at = &parent->child;
    parent->type = keyed ? JSON_OBJECT : JSON_ARRAY;
    if (take(p, closing))
        return true;
    if (++p->depth > JSON_DEPTH_MAX)
        return false;
    do {
        if (!parse_member(p, keyed, at))
            return false;
        at = &(*at)->next;
    } while (take(p, ','));
    p->depth--;
    return take(p, closing);
}

static bool parse_value(struct parser *p, struct json *value)
{
    if (take(p, '{'))
        return parse_members(p, value, true);
    if (take(p, '['))
        return parse_members(p, value, false);
    if (!take(p, '"'))
        return parse_literal(p, value);
    value->type = JSON_STRING;
    return parse_string(p, &value->text, &value->len);
}

/* Each value follows an opening bracket, a comma or nothing. Those in strings do not count: names
 * are the users'. */
static size_t count_values(const char *text, size_t len)
{
    size_t n = 1;
    bool inside = false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '"')
            inside = !inside;
        else if (inside)
            i += text[i] == '\\';
        else
            n += text[i] == ',' || text[i] == '[' || text[i] == '{';
    }
    return n;
}

struct json *ddb_json_parse(char *text, size_t len)
{
    struct parser p = {.at = text, .end = text + len, .cap = count_values(text, len)};
    if (p.cap > JSON_VALUES_MAX)
        return NULL;
    p.values = calloc(p.cap, sizeof *p.values);
    if (!p.values)
        return NULL;
    bool good = parse_value(&p, new_value(&p));
    skip_space(&p);
    if (good && p.at == p.end)
        return p.values;
    free(p.values);
    return NULL;
}

const struct json *ddb_json_get(const struct json *object, const char *key)
{
    if (!object || object->type != JSON_OBJECT)
        return NULL;
    for (const struct json *member = object->child; member; member = member->next) {
        if (strcmp(member->key, key) == 0)
            return member;
    }
    return NULL;
}

const char *ddb_json_text(const struct json *value)
{
    return value && value->type == JSON_STRING ? value->text : NULL;
}

bool ddb_json_u64(uint64_t *number, const struct json *value)
{
    *number = 0;
    if (!value || (value->type != JSON_STRING && value->type != JSON_NUMBER) || !value->len)
        return false;
    for (size_t i = 0; i < value->len; i++) {
        unsigned digit = (unsigned)(unsigned char)value->text[i] - '0';
        if (digit > 9 || *number > (UINT64_MAX - digit) / 10) {
            *number = 0;
            return false;
        }
        *number = *number * 10 + digit;
    }
    return true;
}

static int base64_digit(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *found = c ? strchr(digits, c) : NULL;
    return found ? (int)(found - digits) : -1;
}

bool ddb_json_base64(void *out, size_t *size, const struct json *value)
{
    unsigned char *to = out;
    uint32_t bits = 0;
    size_t n = 0, len = ddb_json_text(value) ? value->len : 0;
    *size = 0;
    if (!ddb_json_text(value) || len % 4)
        return false;
    while (n < 2 && len && value->text[len - 1] == '=')
        len--, n++;
    for (size_t i = 0; i < len; i++) {
        int digit = base64_digit(value->text[i]);
        if (digit < 0)
            return false;
        bits = bits << 6 | (uint32_t)digit;
        if (i % 4)
            to[(*size)++] = (unsigned char)(bits >> (6 - 2 * (i % 4)));
    }
    return true;
}

/* ---- writing ---- */

static void put(struct json_out *out, const void *bytes, size_t n)
{
    if (!out->failed && buffer_put(&out->buffer, bytes, n))
        out->failed = true;
}

static void put_string(struct json_out *out, const char *text)
{
    char escape[8];
    put(out, "\"", 1);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            put(out, "\\", 1);
        if (c < ' ' || c == 127)
            put(out, escape, (size_t)snprintf(escape, sizeof escape, "\\u%04x", c));
        else
            put(out, text, 1);
    }
    put(out, "\"", 1);
}

static void put_base64(struct json_out *out, const void *bytes, size_t size)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *from = bytes;
    put(out, "\"", 1);
    for (size_t i = 0; i < size; i += 3) {
        size_t n = size - i < 3 ? size - i : 3;
        uint32_t bits = (uint32_t)from[i] << 16 | (n > 1 ? (uint32_t)from[i + 1] << 8 : 0) |
                        (n > 2 ? from[i + 2] : 0);
        char four[4] = {digits[bits >> 18], digits[bits >> 12 & 63],
                        n > 1 ? digits[bits >> 6 & 63] : '=', n > 2 ? digits[bits & 63] : '='};
        put(out, four, 4);
    }
    put(out, "\"", 1);
}

static void put_argument(struct json_out *out, char kind, va_list *args)
{
    char number[32];
    const void *bytes;
    switch (kind) {
    case 's':
        put_string(out, va_arg(*args, const char *));
        break;
    case 'r':
        bytes = va_arg(*args, const char *);
        put(out, bytes, strlen(bytes));
        break;
    case 'b':
        bytes = va_arg(*args, const void *);
        put_base64(out, bytes, va_arg(*args, size_t));
        break;
    case 'd':
        put(out, number,
            (size_t)snprintf(number, sizeof number, "\"%" PRId64 "\"", va_arg(*args, int64_t)));
        break;
    default:
        put(out, number,
            (size_t)snprintf(number, sizeof number, "\"%" PRIu64 "\"", va_arg(*args, uint64_t)));
    }
}

void ddb_json_write(struct json_out *out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    for (const char *at = format; *at; at++) {
        if (*at == '%')
            put_argument(out, *++at, &args);
        else
            put(out, *at == '\'' ? "\"" : at, 1);
    }
    va_end(args);
}

const char *ddb_json_end(struct json_out *out)
{
    put(out, "", 1);
    return out->failed ? NULL : buffer_at(&out->buffer);
}

void ddb_json_out_free(struct json_out *out)
{
    buffer_free(&out->buffer);
    out->failed = false;
}
