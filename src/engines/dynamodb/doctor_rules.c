/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/dynamodb/doctor.h"

#define CLOCK_WARNING_S 60
#define CLOCK_DANGER_S  240 /* a signature is refused when it is 300 s off */

const char *const ddb_doctor_operations[] = {
    [ASK_DESCRIBE] = "DescribeTable",
    [ASK_TTL] = "DescribeTimeToLive",
    [ASK_READ] = "GetItem",
    [ASK_WRITE] = "UpdateItem",
    [ASK_SCAN] = "Scan",
};

static int64_t absolute(int64_t n)
{
    return n < 0 ? -n : n;
}

static bool is_missing(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    (void)draft;
    return facts->replies[ASK_DESCRIBE].missing || facts->replies[ASK_READ].missing;
}

static bool has_wrong_key(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    doctor_put(draft, "%s", facts->table.keys);
    doctor_put(draft, "%s", facts->key);
    return facts->described && !facts->table.key_fits;
}

static bool is_global(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    doctor_put(draft, "%zu", facts->table.replicas);
    draft->severity = facts->allow_global ? STILE_WARNING : STILE_DANGER;
    return facts->described && facts->table.replicas && !facts->table.strong;
}

static bool is_inactive(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    doctor_put(draft, "%s", facts->table.status);
    return facts->described && strcmp(facts->table.status, "ACTIVE") != 0 &&
           strcmp(facts->table.status, "UPDATING") != 0;
}

static bool is_denied(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    doctor_put(draft, "%s", ddb_doctor_operations[draft->rule->column]);
    return facts->replies[draft->rule->column].denied;
}

static bool is_badly_signed(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    for (size_t i = 0; i < DOCTOR_QUESTIONS; i++) {
        if (!facts->replies[i].unsigned_)
            continue;
        doctor_put(draft, "%s", facts->replies[i].err.message);
        return true;
    }
    return false;
}

DOCTOR_WHEN(lacks_ttl, facts->ttl_known && !facts->ttl)
DOCTOR_WHEN(is_plain, facts->plain)
DOCTOR_WHEN(is_provisioned, facts->described && facts->table.provisioned)
DOCTOR_WHEN(is_unprotected, facts->described && facts->table.unprotected)

static bool is_clock_off(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    int64_t off = absolute(facts->ahead_s);
    doctor_put(draft, "%lld s %s", (long long)off, facts->ahead_s > 0 ? "ahead of" : "behind");
    draft->severity = off >= CLOCK_DANGER_S ? STILE_DANGER : STILE_WARNING;
    return facts->clock_known && off >= CLOCK_WARNING_S;
}

const struct doctor_rule ddb_doctor_rules[] = {
    {.id = "table-missing",
     .severity = STILE_DANGER,
     .when = is_missing,
     .what = "The table does not exist in this region.",
     .why = "No lock can be granted.",
     .command = "stile setup URL"},
    {.id = "key-schema",
     .severity = STILE_DANGER,
     .when = has_wrong_key,
     .what = "The key of the table is $1.",
     .why = "An item for each name needs the partition key $2, a string, and no sort key.",
     .cure = "Name another table; stile setup creates it."},
    {.id = "global-table",
     .severity = STILE_DANGER,
     .when = is_global,
     .what =
         "It is a global table with $1 replicas in other regions, each of which accepts writes.",
     .why = "Between regions the last writer wins: two clients can be granted the same lock, with "
            "the same token. The engine refuses such a table unless the URL says allow=global.",
     .cure = "Use a table that is in one region only."},
    {.id = "table-status",
     .severity = STILE_DANGER,
     .when = is_inactive,
     .what = "The table is $1.",
     .why = "Nothing can be read or written until it is ACTIVE."},
    {.id = "signature",
     .severity = STILE_DANGER,
     .when = is_badly_signed,
     .what = "The service refuses the signature: $1.",
     .why = "Every request is signed with the credentials and the time of this machine.",
     .cure = "Check the credentials, the region, and this machine's clock."},
    {.id = "clock",
     .severity = STILE_WARNING,
     .when = is_clock_off,
     .what = "This machine's clock is $1 that of the service.",
     .why = "No lock depends on it, but a signature that is 5 minutes off is refused, and then "
            "nothing can be renewed.",
     .cure = "Synchronise the clock (NTP)."},
    {.id = "right-read",
     .severity = STILE_DANGER,
     .when = is_denied,
     .column = ASK_READ,
     .what = "These credentials may not call $1 on the table.",
     .why = "A waiter could not see whether the lock is held.",
     .cure = "Allow dynamodb:GetItem and dynamodb:UpdateItem on the table's ARN."},
    {.id = "right-write",
     .severity = STILE_DANGER,
     .when = is_denied,
     .column = ASK_WRITE,
     .what = "These credentials may not call $1 on the table.",
     .why = "No lock can be granted, renewed or released.",
     .cure = "Allow dynamodb:GetItem and dynamodb:UpdateItem on the table's ARN."},
    {.id = "right-scan",
     .severity = STILE_NOTE,
     .when = is_denied,
     .column = ASK_SCAN,
     .what = "These credentials may not call $1 on the table.",
     .why = "stile ls and stile cell ls are refused; locks do not need it."},
    {.id = "right-describe",
     .severity = STILE_NOTE,
     .when = is_denied,
     .column = ASK_DESCRIBE,
     .what = "These credentials may not call $1 on the table.",
     .why = "A global table cannot be recognised, neither here nor when the engine is opened.",
     .cure = "Allow dynamodb:DescribeTable on the table's ARN."},
    {.id = "right-ttl",
     .severity = STILE_NOTE,
     .when = is_denied,
     .column = ASK_TTL,
     .what = "These credentials may not call $1 on the table.",
     .why = "Whether the table deletes dead items is not known. Locks are not affected.",
     .cure = "Allow dynamodb:DescribeTimeToLive on the table's ARN."},
    {.id = "ttl",
     .severity = STILE_NOTE,
     .when = lacks_ttl,
     .what = "No TTL attribute \"" TTL_ATTRIBUTE "\" is enabled.",
     .why = "The items of names that are no longer used stay, about 150 bytes each. Locks are not "
            "affected.",
     .command = "stile setup URL"},
    {.id = "provisioned",
     .severity = STILE_WARNING,
     .when = is_provisioned,
     .what = "The table has provisioned capacity.",
     .why = "When it is used up, requests are refused for some seconds; a lease that cannot be "
            "renewed in time is lost.",
     .cure = "Change the table to on-demand capacity, or leave room for peaks."},
    {.id = "deletion",
     .severity = STILE_NOTE,
     .when = is_unprotected,
     .what = "The table has no deletion protection.",
     .why = "A table that is deleted and created again issues its tokens a second time.",
     .cure = "Enable deletion protection."},
    {.id = "plain",
     .severity = STILE_WARNING,
     .when = is_plain,
     .what = "The endpoint is reached without TLS.",
     .why = "Anyone on the way can change answers.",
     .cure = "Use an https: endpoint."},
    {0},
};
