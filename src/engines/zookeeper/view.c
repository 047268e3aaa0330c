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

void entry_read(struct entry *entry, const struct answer *answer)
{
    size_t n = answer->data && answer->data_len > 0 ? (size_t)answer->data_len : 0;
    entry->there = true;
    entry->czxid = answer->stat->czxid;
    entry->ctime_ms = answer->stat->ctime;
    entry->data = strndup(n ? answer->data : "", n < INFO_MAX ? n : INFO_MAX);
    for (char *c = entry->data; c && *c; c++)
        *c = (unsigned char)*c < ' ' || *c == 127 ? '?' : *c;
}

const struct entry *place_holder(const struct place *place)
{
    for (size_t i = 0; i < place->n; i++) {
        if (place->entries[i].there)
            return &place->entries[i];
    }
    return NULL;
}

/* "pid host timeout command" as we write it; what others have written is told as it is. */
static void tell_data(struct stile_claim_info *claim, char *data)
{
    long long pid, timeout_ms;
    int host = 0, host_end = 0, command = 0;
    claim->host = "";
    claim->command = data ? data : "";
    if (!data ||
        sscanf(data, "%lld %n%*s%n %lld %n", &pid, &host, &host_end, &timeout_ms, &command) != 2 ||
        !command)
        return;
    data[host_end] = '\0';
    claim->pid = pid;
    claim->host = data + host;
    claim->expires_ms = timeout_ms;
    claim->command = data + command;
}

void place_tell(const struct place *place, struct stile_info *info, struct stile_claim_info *claims,
                int64_t now_ms)
{
    size_t n = 0;
    *info = (struct stile_info){.name = place->name, .claims = claims};
    for (size_t i = 0; i < place->n; i++) {
        struct entry *entry = &place->entries[i];
        if (!entry->there)
            continue;
        int64_t age_ms = now_ms - entry->ctime_ms;
        claims[n] = (struct stile_claim_info){.held = n == 0,
                                              .mode = STILE_EXCLUSIVE,
                                              .token = n == 0 ? (uint64_t)entry->czxid : 0,
                                              .age_ms = age_ms > 0 ? age_ms : 0,
                                              .owner = strrchr(entry->path, '/') + 1};
        tell_data(&claims[n++], entry->data);
    }
    info->holders = n > 0;
    info->waiters = n - info->holders;
    /* Of a name that nobody holds any more it is not known: no token so far is greater than this.
     */
    info->token = n > 0 ? claims[0].token : (uint64_t)place->pzxid;
}
