/* Who holds a name and who waits for it, for tables and as JSON. */
#include "cli.h"

#include <inttypes.h>
#include <stdlib.h>

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

char *info_holder(const struct stile_claim_info *claim)
{
    char *text = NULL;
    int len;
    if (claim->ghost) {
        char left[DURATION_TEXT_MAX];
        len = asprintf(&text, "nobody, kept for %s more", duration_format(left, claim->expires_ms));
    } else if (claim->pid != 0) {
        len = asprintf(&text, "%" PRId64 "@%s %s%s%s", claim->pid, claim->host, claim->command,
                       claim->proclaimed[0] != '\0' ? " as " : "", claim->proclaimed);
    } else {
        const char *who = claim->host[0] != '\0'         ? claim->host
                          : claim->proclaimed[0] != '\0' ? claim->proclaimed
                                                         : claim->owner;
        len = asprintf(&text, "%s %s", who, claim->command);
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
