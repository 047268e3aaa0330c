/* The claims we have on the server: by owner, for messages name them so; and by age, for who was
 * first in line is to be the first again. */
#include <string.h>

#include "engines/redis/redis.h"

static unsigned head_of(const char *owner)
{
    unsigned head = 0;
    for (size_t i = OWNER_LEN - 8; i < OWNER_LEN; i++)
        head = head * 31 + (unsigned char)owner[i];
    return head % OWNER_HEADS;
}

void claim_enlist(struct redis_claim *part)
{
    struct redis *redis = redis_of_part(part);
    struct redis_claim **head = &redis->by_owner[head_of(part->owner)];
    part->next = *head;
    *head = part;
    part->older = redis->newest;
    part->newer = NULL;
    *(redis->newest ? &redis->newest->newer : &redis->oldest) = part;
    redis->newest = part;
    part->listed = true;
    part->stake = stakes_add(&redis->stakes, claim_of(part)->ttl_ns);
}

void claim_unlist(struct redis_claim *part)
{
    struct redis *redis = redis_of_part(part);
    struct redis_claim **at = &redis->by_owner[head_of(part->owner)];
    if (!part->listed)
        return;
    while (*at != part)
        at = &(*at)->next;
    *at = part->next;
    *(part->older ? &part->older->newer : &redis->oldest) = part->newer;
    *(part->newer ? &part->newer->older : &redis->newest) = part->older;
    part->listed = false;
    stakes_remove(&redis->stakes, part->stake);
}

struct redis_claim *claim_find(struct redis *redis, const char *owner)
{
    struct redis_claim *part = redis->by_owner[head_of(owner)];
    while (part && memcmp(part->owner, owner, OWNER_LEN) != 0)
        part = part->next;
    return part;
}
