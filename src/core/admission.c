#include "core/admission.h"

#include "core/lock.h"

static struct admission *of(const struct stile_lock *lock)
{
    return &lock->client->admission;
}

static size_t limit(const struct stile_client *client)
{
    return client->engine->class->in_flight;
}

/* ---- the lines ---- */

static void append(struct stile_lock *lock, enum admission_line line)
{
    struct admission *admission = of(lock);
    if (!admission->first[RELEASE_LINE] && !admission->first[CLAIM_LINE])
        admission->progress_ns = loop_now(lock->client->loop);
    lock->admission = IN_LINE;
    lock->admission_line = line;
    lock->line_next = NULL;
    lock->line_before = admission->last[line];
    if (lock->line_before)
        lock->line_before->line_next = lock;
    else
        admission->first[line] = lock;
    admission->last[line] = lock;
}

static void unlink_from_line(struct stile_lock *lock)
{
    struct admission *admission = of(lock);
    if (lock->line_before)
        lock->line_before->line_next = lock->line_next;
    else
        admission->first[lock->admission_line] = lock->line_next;
    if (lock->line_next)
        lock->line_next->line_before = lock->line_before;
    else
        admission->last[lock->admission_line] = lock->line_before;
    lock->admission = NOT_ASKING;
}

static struct stile_lock *next_in_line(const struct admission *admission)
{
    struct stile_lock *release = admission->first[RELEASE_LINE];
    return release ? release : admission->first[CLAIM_LINE];
}

/* ---- coming and going ---- */

struct stile_lock *admission_next(struct stile_client *client)
{
    struct admission *admission = &client->admission;
    struct stile_lock *lock = next_in_line(admission);
    if (!lock || admission->in_flight >= limit(client))
        return NULL;
    unlink_from_line(lock);
    lock->admission = IN_FLIGHT;
    admission->in_flight++;
    return lock;
}

void admission_close(struct stile_client *client)
{
    struct stile_lock *lock;
    while ((lock = next_in_line(&client->admission)))
        unlink_from_line(lock);
    loop_forget(client->loop, &client->admission.admit);
}

bool admission_enter(struct stile_lock *lock, enum admission_line line)
{
    struct admission *admission = of(lock);
    if (limit(lock->client) == 0 || lock->admission == IN_FLIGHT)
        return true; /* a claim that is being withdrawn keeps its place */
    if (admission->in_flight >= limit(lock->client) || admission->first[line]) {
        append(lock, line);
        return false;
    }
    lock->admission = IN_FLIGHT;
    admission->in_flight++;
    return true;
}

void admission_leave(struct stile_lock *lock)
{
    struct admission *admission = of(lock);
    if (lock->admission == NOT_ASKING)
        return;
    if (lock->admission == IN_LINE) {
        unlink_from_line(lock);
        return;
    }
    lock->admission = NOT_ASKING;
    admission->in_flight--;
    if (next_in_line(admission)) {
        admission->progress_ns = loop_now(lock->client->loop);
        loop_soon(lock->client->loop, &admission->admit);
    }
}

uint64_t admission_patience_ends(const struct stile_client *client, uint64_t patience_ns)
{
    return client->admission.progress_ns + patience_ns;
}
