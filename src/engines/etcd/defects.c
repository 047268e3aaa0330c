/* Defects of releases that concern locks, as their release notes tell. */
#include <stdio.h>

#include "engines/etcd/doctor.h"

#define OLDEST_MINOR 4
#define NEWEST_MINOR 6

static const struct defect too_old = {.severity = STILE_DANGER,
                                      .id = "old",
                                      .what = "is too old",
                                      .why = "stile refuses it: it needs what came with 3.4."};

static const struct defect known[] = {
    {.fixed = {0, 3, 0},
     .severity = STILE_DANGER,
     .id = "old-disagrees",
     .what = "may lose writes when a member crashes",
     .why = "Members then disagree, and with them two holders may."},
    {.fixed = {21, 5, 0},
     .severity = STILE_DANGER,
     .alone = true,
     .id = "old-forgets",
     .what = "alone answers before its disk has it",
     .why = "After a crash a grant may be forgotten, and its token given out again."},
    {.fixed = {32, 14, 0},
     .severity = STILE_WARNING,
     .id = "old-goes-back",
     .what = "may come back at an earlier revision after a crash during a compaction",
     .why = "Tokens are revisions: one may be given out again."},
    {.fixed = {31, 13, 0},
     .severity = STILE_NOTE,
     .id = "old-revokes",
     .what = "may revoke a lease that was renewed",
     .why = "A leader that was cut off or stopped does so when it is back: a live holder loses "
            "its lock, and is told."},
    {.fixed = {38, 23, 5},
     .severity = STILE_NOTE,
     .id = "old-keep-alive",
     .what = "may answer a keep-alive as if all was well though the lease is revoked",
     .why = "stile looks at its keys instead; other clients on the same locks may not."},
    {.fixed = {36, 18, 0},
     .severity = STILE_NOTE,
     .id = "old-watch",
     .what = "may miss a deletion in a watch that begins in the past",
     .why = "stile does not watch the past; a waiter of another client may wait for ever."},
    {.fixed = {42, 28, 0},
     .severity = STILE_NOTE,
     .id = "old-read",
     .what = "may answer with stale data after a pause or a change of the leader",
     .why = "stile never holds past its own deadline; other clients may."},
};

#define N_KNOWN (sizeof known / sizeof *known)

struct release {
    unsigned major, minor, patch;
};

static struct release read_release(const char *version)
{
    struct release r = {0};
    sscanf(version, "%u.%u.%u", &r.major, &r.minor, &r.patch);
    return r;
}

const struct defect *defect_next(const struct defect *last, const char *version, size_t voters)
{
    struct release r = read_release(version);
    if (r.major < 3 || (r.major == 3 && r.minor < OLDEST_MINOR))
        return last ? NULL : &too_old;
    if (r.major != 3 || r.minor > NEWEST_MINOR)
        return NULL;
    for (const struct defect *d = last ? last + 1 : known; d < known + N_KNOWN; d++) {
        if (r.patch < d->fixed[r.minor - OLDEST_MINOR] && (!d->alone || voters == 1))
            return d;
    }
    return NULL;
}

void defect_cure(char *cure, size_t size, const struct defect *defect, const char *version)
{
    struct release r = read_release(version);
    if (defect == &too_old)
        snprintf(cure, size, "Upgrade it, member by member.");
    else
        snprintf(cure, size, "Upgrade it to 3.%u.%u or later, member by member.", r.minor,
                 defect->fixed[r.minor - OLDEST_MINOR]);
}
