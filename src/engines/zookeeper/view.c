#include "engines/zookeeper/view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Times of the servers are told to people by our own wall clock: nothing else is decided by it. */
static int64_t wall_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- what there is ---- */

static struct entry *add(struct place *place, const char *node, enum stile_mode mode)
{
    struct entry *entry = &place->entries[place->n++];
    entry->looking = place->looking;
    entry->mode = mode;
    if (asprintf(&entry->path, "%s/%s", place->path, node) >= 0)
        return entry;
    entry->path = NULL;
    return NULL;
}

static bool add_ghosts(struct place *place, const struct line *line,
                       const struct jute_strings *children)
{
    bool added = true;
    for (size_t i = 0; added && i < children->n; i++) {
        enum stile_mode mode;
        const char *guid = record_guid(&mode, children->list[i]);
        if (!guid || !record_is_orphan(line, guid))
            continue;
        struct entry *entry = add(place, children->list[i], mode);
        added = entry != NULL;
        if (added)
            entry->ghost = true;
    }
    return added;
}

/* What the node's claim leaves behind when it goes. */
static bool add_record(struct entry *entry, const char *node, const struct place *place,
                       const struct jute_strings *children)
{
    for (size_t i = 0; i < children->n; i++) {
        enum stile_mode mode;
        const char *guid = record_guid(&mode, children->list[i]);
        if (guid && strstr(node, guid))
            return asprintf(&entry->record, "%s/%s", place->path, children->list[i]) >= 0 ||
                   (entry->record = NULL);
    }
    return true;
}

enum stile_status place_fill(struct place *place, const struct zoo *zoo,
                             const struct jute_strings *children, struct stile_error *err)
{
    struct line line;
    enum stile_status status = line_sort(&line, zoo, children, err);
    if (status)
        return status;
    place->entries = calloc(children->n + 1, sizeof *place->entries);
    bool filled = place->entries && add_ghosts(place, &line, children);
    for (size_t i = 0; filled && i < line.n; i++) {
        struct entry *entry = add(place, line.nodes[i], node_mode(zoo, line.nodes[i]));
        filled = entry && add_record(entry, line.nodes[i], place, children);
    }
    line_free(&line);
    return filled ? STILE_OK : error_set(err, STILE_NOMEM, 0, "out of memory");
}

void place_empty(struct place *place)
{
    for (size_t i = 0; i < place->n; i++) {
        asker_forget(&place->entries[i].asker);
        free(place->entries[i].path);
        free(place->entries[i].record);
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

static void read_record(struct entry *entry, const struct jute_stat *stat)
{
    struct record record = {.host = "", .command = ""};
    int64_t now_ms = wall_ms();
    if (entry->data && record_read(&record, entry->data))
        entry->until_ms = record_until(&record, stat, now_ms);
    entry->there = entry->until_ms > now_ms;
    entry->token = record.token;
    entry->pid = record.pid;
    entry->host = record.host;
    entry->command = record.command;
}

void entry_read(struct entry *entry, const struct answer *answer)
{
    size_t n = answer->data_len;
    /* Only what ends with a session is a claim; all else is none of ours to show or to delete. */
    entry->there = answer->stat->ephemeral_owner != 0;
    entry->czxid = answer->stat->czxid;
    entry->token = (uint64_t)entry->czxid;
    entry->ctime_ms = answer->stat->ctime;
    entry->data = strndup(n ? answer->data : "", n < INFO_MAX ? n : INFO_MAX);
    for (char *c = entry->data; c && *c; c++)
        *c = (unsigned char)*c < ' ' || *c == 127 ? '?' : *c;
    if (entry->ghost)
        read_record(entry, answer->stat);
    else
        read_data(entry);
}

/* ---- what it comes to ---- */

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
        entry->held = entry->there && (entry->ghost || holds(before, entry));
        before[entry->mode] += entry->there;
    }
}

static void tell_one(struct stile_claim_info *claim, const struct entry *entry, int64_t now_ms)
{
    int64_t age_ms = now_ms - entry->ctime_ms;
    int64_t left_ms = entry->until_ms > now_ms ? entry->until_ms - now_ms : 1;
    *claim = (struct stile_claim_info){.held = entry->held,
                                       .ghost = entry->ghost,
                                       .mode = entry->mode,
                                       .token = entry->held ? entry->token : 0,
                                       .age_ms = age_ms > 0 ? age_ms : 0,
                                       .expires_ms = entry->ghost ? left_ms : entry->timeout_ms,
                                       .pid = entry->pid,
                                       .host = entry->host,
                                       .command = entry->command,
                                       .owner = strrchr(entry->path, '/') + 1};
}

/* Holders come first; the order is kept among holders and among who waits. */
void place_tell(const struct place *place, struct stile_info *info, struct stile_claim_info *claims)
{
    int64_t now_ms = wall_ms();
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

int64_t place_haunted_ms(const struct place *place)
{
    int64_t until_ms = 0, now_ms = wall_ms();
    for (size_t i = 0; i < place->n; i++) {
        const struct entry *entry = &place->entries[i];
        if (entry->ghost && entry->there && (!until_ms || entry->until_ms < until_ms))
            until_ms = entry->until_ms;
    }
    return until_ms == 0 ? 0 : until_ms > now_ms ? until_ms - now_ms : 1;
}
