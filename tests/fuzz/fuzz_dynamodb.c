/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A reply is refused, or it is JSON whose strings are UTF-8 without NUL, and come back from the
 * writer as they were. What is read as an item, in either layout, is within its limits. */
#include "base/text.h"
#include "engines/dynamodb/amazon.h"
#include "engines/dynamodb/json.h"
#include "fuzz.h"

static void check_text(const char *text)
{
    struct json_out out = {0};
    size_t len = strlen(text);
    for (size_t i = 0, n; i < len; i += n) {
        n = utf8_length(NULL, text + i, len - i);
        MUST(n > 0);
    }
    ddb_json_write(&out, "[%s]", text);
    MUST(ddb_json_end(&out));
    char *again = out.buffer.bytes + out.buffer.head;
    struct json *root = ddb_json_parse(again, strlen(again));
    MUST(root && root->child && strcmp(ddb_json_text(root->child), text) == 0);
    free(root);
    ddb_json_out_free(&out);
}

static void check_base64(const struct json *value)
{
    size_t size;
    struct json_out out = {0};
    char *bytes = malloc(value->len / 4 * 3 + 1);
    MUST(bytes);
    if (ddb_json_base64(bytes, &size, value)) {
        MUST(size <= value->len / 4 * 3);
        ddb_json_write(&out, "%b", bytes, size);
        MUST(ddb_json_end(&out));
        MUST(strlen(buffer_at(&out.buffer)) == value->len + 2);
    }
    ddb_json_out_free(&out);
    free(bytes);
}

static void check_value(const struct json *value, unsigned depth)
{
    uint64_t number;
    MUST(depth <= JSON_DEPTH_MAX);
    if (value->key)
        check_text(value->key);
    if (value->type == JSON_STRING) {
        MUST(strlen(value->text) == value->len);
        check_text(value->text);
        check_base64(value);
    }
    (void)ddb_json_u64(&number, value);
    for (const struct json *child = value->child; child; child = child->next)
        check_value(child, depth + 1);
}

static void check_item(const struct dialect *dialect, struct dynamo *d, const struct json *root)
{
    struct stile_error err = {0};
    struct item item = {0};
    uint64_t ends_ns, now = loop_now(d->engine.loop);
    enum stile_status status = dialect->read(&item, d, root, now, &err);
    MUST(status == STILE_OK || (status == STILE_CORRUPT && fuzz_is_line(err.message)));
    for (size_t i = 0; !status && i < item.n; i++) {
        const struct item_claim *claim = &item.claims[i];
        MUST(claim->id && claim->info && claim->proclaimed);
        MUST(claim->ttl_ms <= LEASE_MS_MAX && claim->hold_ms <= LEASE_MS_MAX);
        MUST(claim->over || claim->ends_ns > now - NS_PER_SEC);
        MUST(ddb_item_find(&item, claim->id));
    }
    if (!status && ddb_item_admits(&item, STILE_EXCLUSIVE, 0, &ends_ns))
        MUST(ends_ns == NEVER);
    ddb_item_free(&item);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct dynamo d = {.date_offset_s = INT64_C(1) << 31}; /* claims are judged by it */
    char *text = malloc(size + 1);
    MUST(text);
    memcpy(text, bytes, size);
    text[size] = '\0';
    struct json *root = ddb_json_parse(text, size);
    MUST(loop_epoll_new(&d.engine.loop) == 0);
    if (root) {
        check_value(root, 0);
        check_item(&ddb_own, &d, root);
        check_item(&ddb_amazon, &d, root);
        ddb_observed_free(&d.observed);
    }
    loop_free(d.engine.loop);
    free(root);
    free(text);
    return 0;
}
