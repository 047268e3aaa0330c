#include "engines/zookeeper/view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum stile_status place_fill(struct place *place, const struct zoo *zoo,
                             const struct String_vector *children, struct stile_error *err)
{
    struct line line;
    enum stile_status status = line_sort(&line, zoo, children, err);
    if (status)
        return status;
    place->entries = calloc(line.n + 1, sizeof *place->entries);
    bool filled = place->entries != NULL;
    for (size_t i = 0; filled && i < line.n; i++) {
        struct entry *entry = &place->entries[place->n++];
        entry->looking = place->looking;
        entry->mode = node_mode(zoo, line.nodes[i]);
        filled = asprintf(&entry->path, "%s/%s", place->path, line.nodes[i]) >= 0;
        if (!filled)
            entry->path = NULL;
    }
    line_free(&line);
    return filled ? STILE_OK : error_set(err, STILE_NOMEM, 0, "out of memory");
}

void place_empty(struct place *place)
{
    for (size_t i = 0; i < place->n; i++) {
        asker_forget(&place->entries[i].asker);
        free(place->entries[i].path);
        free(place->entries[i].data);
    }
    free(place->entries);
    place->entries = NULL;
    place->n = 0;
}

/* "pid host timeout/slots command" as we write it; what others have written is told as it is. */
static void read_data(struct entry *entry)
{
    char *data = entry->data;
    long long pid, timeout_ms;
    unsigned slots;
    int host = 0, host_end = 0, command = 0;
    entry->host = "";
    entry->command = data ? data : "";
    if (!data ||
        sscanf(data, "%lld %n%*s%n %lld/%u %n", &pid, &host, &host_end, &timeout_ms, &slots,
               &command) != 3 ||
        !command)
        return;
    data[host_end] = '\0';
    entry->pid = pid;
    entry->host = data + host;
    entry->timeout_ms = timeout_ms;
    entry->slots = slots;
    entry->command = data + command;
}

void entry_read(struct entry *entry, const struct answer *answer)
{
    size_t n = answer->data && answer->data_len > 0 ? (size_t)answer->data_len : 0;
    entry->there = true;
    entry->czxid = answer->stat->czxid;
    entry->ctime_ms = answer->stat->ctime;
    entry->data = strndup(n ? answer->data : "", n < INFO_MAX ? n : INFO_MAX);
    for (char *c = entry->data; c && *c; c++)
        *c = (unsigned char)*c < ' ' || *c == 127 ? '?' : *c;
    read_data(entry);
}

static bool holds(const size_t before[3], const struct entry *entry)
{
    size_t exclusive = before[STILE_EXCLUSIVE], shared = before[STILE_SHARED],
           slots = before[STILE_SLOTS];
    switch (entry->mode) {
    case STILE_SHARED:
        return exclusive + slots == 0;
    case STILE_SLOTS:
        return exclusive + shared == 0 && (slots == 0 || slots < entry->slots);
    default:
        return exclusive + shared + slots == 0;
    }
}

void place_weigh(struct place *place)
{
    size_t before[3] = {0};
    for (size_t i = 0; i < place->n; i++) {
        struct entry *entry = &place->entries[i];
        entry->held = entry->there && holds(before, entry);
        before[entry->mode] += entry->there;
    }
}

static void tell_one(struct stile_claim_info *claim, const struct entry *entry, int64_t now_ms)
{
    int64_t age_ms = now_ms - entry->ctime_ms;
    *claim = (struct stile_claim_info){.held = entry->held,
                                       .mode = entry->mode,
                                       .token = entry->held ? (uint64_t)entry->czxid : 0,
                                       .age_ms = age_ms > 0 ? age_ms : 0,
                                       .expires_ms = entry->timeout_ms,
                                       .pid = entry->pid,
                                       .host = entry->host,
                                       .command = entry->command,
                                       .owner = strrchr(entry->path, '/') + 1};
}

/* Holders come first; the order is kept among holders and among who waits. */
void place_tell(const struct place *place, struct stile_info *info, struct stile_claim_info *claims,
                int64_t now_ms)
{
    size_t n = 0;
    /* Of a name that nobody holds any more it is not known: no token so far is greater than this.
     */
    *info =
        (struct stile_info){.name = place->name, .claims = claims, .token = (uint64_t)place->pzxid};
    for (size_t i = 0; i < place->n; i++) {
        if (!place->entries[i].held)
            continue;
        tell_one(&claims[n++], &place->entries[i], now_ms);
        info->token = claims[n - 1].token;
    }
    info->holders = n;
    for (size_t i = 0; i < place->n; i++) {
        if (place->entries[i].there && !place->entries[i].held)
            tell_one(&claims[n++], &place->entries[i], now_ms);
    }
    info->waiters = n - info->holders;
}
