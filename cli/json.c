/* JSON as it is written: nothing is kept but whether a comma is due. */
#include "cli.h"

#include <inttypes.h>
#include <string.h>

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
