/* Leaving: giving back, withdrawing, clearing away. The own node lives by a session that others of
 * ours keep alive, so it would not end by itself: what is not answered is said again until it is.
 *
 * A node whose creation was not answered has no known number. It is looked for by the GUID in its
 * name, behind a sync: the server we are with by now may be one that has not heard of it yet. */
#include <stdlib.h>
#include <string.h>

#include "engines/zookeeper/zookeeper.h"

static void say(struct zoo_claim *part);

static void left(struct zoo_claim *part, const struct stile_error *err)
{
    struct claim *claim = claim_of(part);
    claim_forget(part);
    claim->engine->events->released(claim, err);
}

static void say_again(struct timer *timer)
{
    say(part_of_timer(timer));
}

/* What is said of its record goes first, so it is answered by now, or was lost. */
static void node_left(struct zoo_claim *part, const struct stile_error *err)
{
    part->gone = true;
    if (part->recorded)
        claim_again_later(part, say_again);
    else
        left(part, err);
}

/* Its node may still be there: core asks again. */
static void not_left(struct zoo_claim *part, int rc)
{
    struct claim *claim = claim_of(part);
    struct stile_error err;
    part->leaving = false;
    fault_set(&err, rc, true);
    claim->engine->events->released(claim, &err);
}

/* What it leaves open is taken up by claims_session_ends(). */
static bool is_ending(const struct zoo_claim *part)
{
    return part->session->ending;
}

/* It is there, or may be. */
static bool has_node(const struct zoo_claim *part)
{
    return !part->gone && (part->node || part->created_maybe);
}

/* ---- the node is known ---- */

static void on_left(struct asker *asker, const struct answer *answer)
{
    struct zoo_claim *part = part_of_asker(asker);
    struct stile_error err;
    part->in_flight--;
    if (is_ending(part))
        return;
    if (fault_may_pass(answer->rc)) {
        part->doubtful = part->doubtful || answer->maybe;
        claim_again_later(part, say_again);
    } else if (answer->rc == ZNONODE && part->was_held && !part->doubtful) {
        error_set(&err, STILE_LOST, ZNONODE, "it was not ours any more");
        node_left(part, &err);
    } else if (answer->rc == ZOK || answer->rc == ZNONODE) {
        node_left(part, NULL);
    } else {
        not_left(part, answer->rc);
    }
}

/* ---- it is not ---- */

static char *find_node(const char *path, const struct jute_strings *children, const char *guid)
{
    for (size_t i = 0; i < children->n; i++) {
        const char *child = children->list[i];
        enum stile_mode mode;
        if (!strstr(child, guid) || record_guid(&mode, child))
            continue;
        char *node = malloc(strlen(path) + strlen(child) + 2);
        return node ? strcat(strcat(strcpy(node, path), "/"), child) : NULL;
    }
    return NULL;
}

static void on_searched(struct asker *asker, const struct answer *answer)
{
    struct zoo_claim *part = part_of_asker(asker);
    const struct claim *claim = claim_of(part);
    char path[PATH_ROOM];
    part->in_flight--;
    if (is_ending(part))
        return;
    if (fault_may_pass(answer->rc)) {
        claim_again_later(part, say_again);
    } else if (answer->rc == ZOK) {
        path_of_name(path, zoo_of_part(part), claim->name, claim->name_len);
        part->node = find_node(path, answer->children, part->guid);
        if (part->node)
            say(part);
        else
            node_left(part, NULL);
    } else if (answer->rc == ZNONODE) {
        node_left(part, NULL);
    } else {
        not_left(part, answer->rc);
    }
}

static void on_synced(struct asker *asker, const struct answer *answer)
{
    (void)answer; /* what comes behind it says the same */
    part_of_asker(asker)->in_flight--;
}

static bool search(struct zoo_claim *part)
{
    const struct claim *claim = claim_of(part);
    char path[PATH_ROOM];
    path_of_name(path, zoo_of_part(part), claim->name, claim->name_len);
    bool synced = ask_sync(part->session, &part->asker, path, on_synced);
    part->in_flight += synced;
    return synced && ask_children(part->session, &part->asker, path, NULL, on_searched);
}

/* ---- release() ---- */

static void on_record_left(struct asker *asker, const struct answer *answer)
{
    struct zoo_claim *part = part_of_asker(asker);
    part->in_flight--;
    if (is_ending(part))
        return;
    part->recorded = fault_may_pass(answer->rc);
    if (has_node(part))
        return;
    if (part->recorded)
        claim_again_later(part, say_again);
    else
        left(part, NULL);
}

static void say(struct zoo_claim *part)
{
    bool asked = true;
    part->standing = LEAVING;
    if (part->recorded)
        asked = legacy_leave(part, on_record_left);
    if (!has_node(part) && !part->recorded) {
        left(part, NULL);
        return;
    }
    if (asked && has_node(part)) {
        asked = part->node ? ask_delete_together(part->session, &part->asker, part->node, on_left)
                           : search(part);
        part->in_flight += asked;
    }
    if (!asked)
        claim_again_later(part, say_again);
}

void release_answered(struct zoo_claim *part)
{
    part->tries = 0;
    say(part);
}

void claims_release(struct engine *engine, struct claim *claim)
{
    struct zoo_claim *part = part_of(claim);
    if (part->standing == NOWHERE) {
        engine->events->released(claim, NULL);
        return;
    }
    part->leaving = true;
    part->tries = 0;
    claim_unwatch(part);
    if (part->gone && !part->recorded)
        left(part, NULL);
    else if (part->in_flight == 0 && !is_ending(part))
        say(part);
}

/* ---- tried once, and was not the first ---- */

static void explain(struct stile_error *err, struct zoo_claim *part)
{
    char path[PATH_ROOM];
    path_of_name(path, zoo_of_part(part), claim_of(part)->name, claim_of(part)->name_len);
    if (part->refusal == NUMBERS_USED_UP)
        error_set(
            err, STILE_REFUSED, 0,
            "the server has nearly used up the numbers of nodes below %.300s: let nobody claim "
            "it for two minutes, so that the server removes it, or delete it by hand",
            path);
    else
        error_set(err, STILE_REFUSED, 0,
                  "a persistent node below %.300s has the name of a claim, and all who come behind "
                  "it wait for ever: delete it by hand",
                  path);
}

static void turned_away(struct zoo_claim *part)
{
    struct claim *claim = claim_of(part);
    bool refused = part->refusal != NOT_REFUSED;
    struct stile_error err;
    if (refused)
        explain(&err, part);
    claim_forget(part);
    if (refused)
        claim->engine->events->failed(claim, &err);
    else
        claim->engine->events->busy(claim, 0);
}

static void on_withdrawn(struct asker *asker, const struct answer *answer)
{
    struct zoo_claim *part = part_of_asker(asker);
    struct stile_error err;
    part->in_flight--;
    if (is_ending(part))
        return;
    if (part->leaving) {
        release_answered(part);
    } else if (answer->rc == ZOK || answer->rc == ZNONODE) {
        turned_away(part);
    } else {
        fault_set(&err, answer->rc, true);
        claim_fail(part, &err);
    }
}

void claim_withdraw(struct zoo_claim *part)
{
    struct stile_error err;
    part->standing = WITHDRAWING;
    if (ask_delete_together(part->session, &part->asker, part->node, on_withdrawn)) {
        part->in_flight++;
        return;
    }
    fault_set(&err, ZNOMEMORY, true);
    claim_fail(part, &err);
}

void release_session_ended(struct zoo_claim *part)
{
    part->gone = true;
    if (part->leaving)
        say(part);
    else if (part->standing == WITHDRAWING)
        turned_away(part);
    /* else it has failed, and core is about to withdraw it */
}
