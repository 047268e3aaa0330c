/* Records: what keeps a name when its holder has gone.
 *
 * A record is a persistent node beside the line, "stile-kept-<mode>-<guid>", with the GUID of its
 * claim's node: while that is there, the record says nothing. It stands behind all in Curator's
 * order, and kazoo's locks don't look at it. Its own times are the server's, which is the clock
 * that counts: hold_at_least from when it was made; lock-delay from when it was changed, which who
 * leaves abnormally does, or else the first one that finds its node gone. */
#include <stdio.h>
#include <string.h>

#include "engines/zookeeper/zookeeper.h"

#define HEAD "stile-kept-"

static const char letters[] = {
    [STILE_EXCLUSIVE] = 'x', [STILE_SHARED] = 's', [STILE_SLOTS] = 'n', '\0'};

const char *record_guid(enum stile_mode *mode, const char *node)
{
    size_t head = strlen(HEAD);
    const char *letter =
        strncmp(node, HEAD, head) == 0 && node[head] ? strchr(letters, node[head]) : NULL;
    if (!letter || node[head + 1] != '-' || !node[head + 2])
        return NULL;
    *mode = (enum stile_mode)(letter - letters);
    return node + head + 2;
}

bool record_is_orphan(const struct line *line, const char *guid)
{
    for (size_t i = 0; i < line->n; i++) {
        if (strstr(line->nodes[i], guid))
            return false;
    }
    return true;
}

void path_of_record(char path[PATH_ROOM], const struct zoo *zoo, const struct claim *claim,
                    const char *guid)
{
    path_of_name(path, zoo, claim->name, claim->name_len);
    size_t n = strlen(path);
    snprintf(path + n, PATH_ROOM - n, "/" HEAD "%c-%s", letters[claim->mode], guid);
}

void record_write(char data[INFO_MAX], const struct zoo *zoo, const struct record *record)
{
    snprintf(data, INFO_MAX, "%ld %s %lld/%lld %llu %s", zoo->pid, zoo->host,
             (long long)record->hold_ms, (long long)record->delay_ms,
             (unsigned long long)record->token, zoo->command);
}

bool record_read(struct record *record, char *data)
{
    long long pid, hold_ms, delay_ms;
    unsigned long long token;
    int host = 0, host_end = 0, command = 0;
    *record = (struct record){.host = "", .command = ""};
    if (sscanf(data, "%lld %n%*s%n %lld/%lld %llu %n", &pid, &host, &host_end, &hold_ms, &delay_ms,
               &token, &command) != 4 ||
        !command || hold_ms < 0 || delay_ms < 0)
        return false;
    data[host_end] = '\0';
    *record = (struct record){.hold_ms = hold_ms,
                              .delay_ms = delay_ms,
                              .token = token,
                              .pid = pid,
                              .host = data + host,
                              .command = data + command};
    return true;
}

bool record_is_unmarked(const struct record *record, const struct jute_stat *stat)
{
    return record->delay_ms > 0 && stat->version == 0;
}

int64_t record_until(const struct record *record, const struct jute_stat *stat, int64_t now_ms)
{
    int64_t hold_ms = stat->ctime + record->hold_ms;
    int64_t delay_ms = record->delay_ms + (record_is_unmarked(record, stat) ? now_ms : stat->mtime);
    return record->delay_ms > 0 && delay_ms > hold_ms ? delay_ms : hold_ms;
}
