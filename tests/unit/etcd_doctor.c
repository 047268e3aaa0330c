/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Findings from the status of members. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engines/etcd/doctor.h"

#define FOUND_MAX 40

static struct found {
    enum stile_severity severity;
    char id[40], where[200], text[1000];
} found[FOUND_MAX];
static size_t n_found;

static void note(void *data, const struct stile_finding *f)
{
    struct found *one = &found[n_found++];
    (void)data;
    assert_true(n_found <= FOUND_MAX);
    one->severity = f->severity;
    snprintf(one->id, sizeof one->id, "%s", f->id);
    snprintf(one->where, sizeof one->where, "%s", f->where ? f->where : "");
    snprintf(one->text, sizeof one->text, "%s. %s %s", f->what, f->why ? f->why : "",
             f->cure ? f->cure : "");
}

static const struct found *find(const struct cluster_status *cluster, const char *id)
{
    n_found = 0;
    etcd_doctor_diagnose(cluster, note, NULL);
    for (size_t i = 0; i < n_found; i++) {
        if (strcmp(found[i].id, id) == 0)
            return &found[i];
    }
    return NULL;
}

static void check(const struct cluster_status *cluster, const char *id,
                  enum stile_severity severity, const char *where, const char *word)
{
    const struct found *one = find(cluster, id);
    if (!one)
        fail_msg("nothing is said of %s", id);
    assert_int_equal(one->severity, severity);
    assert_string_equal(one->where, where);
    if (!strstr(one->text, word))
        fail_msg("no \"%s\" in \"%s\"", word, one->text);
}

/* Members a, b, c, ... of one cluster, all well. */
static struct cluster_status healthy(size_t n)
{
    struct cluster_status cluster = {.n_members = n, .n_listed = n, .lease_seconds = 2};
    for (size_t i = 0; i < n; i++) {
        cluster.members[i] = (struct member_status){
            .cluster = 7, .id = i + 1, .leader = 1, .applied = 5000, .version = "3.6.99"};
        snprintf(cluster.members[i].where, sizeof cluster.members[i].where, "%c:2379",
                 (int)('a' + i));
        cluster.listed[i].id = i + 1;
        snprintf(cluster.listed[i].name, sizeof cluster.listed[i].name, "%c", (int)('a' + i));
    }
    return cluster;
}

static void take_down(struct cluster_status *cluster, size_t i)
{
    error_set(&cluster->members[i].error, STILE_UNREACHABLE, 0, "refused");
}

/* ---- members ---- */

static void all_is_well(void **state)
{
    struct cluster_status cluster = healthy(3);
    (void)state;
    check(&cluster, "members", STILE_FINE, "", "3 voting members, 3 of them answer here");
    check(&cluster, "version", STILE_FINE, "a:2379, b:2379, c:2379", "etcd 3.6.99");
    for (size_t i = 0; i < n_found; i++)
        assert_int_equal(found[i].severity, STILE_FINE);
}

static void who_is_down_and_how_many_may_follow(void **state)
{
    struct cluster_status cluster = healthy(5);
    (void)state;
    take_down(&cluster, 3);
    check(&cluster, "down", STILE_WARNING, "d:2379",
          "4 of 5 voting members answer: 1 more may fail");
    take_down(&cluster, 0);
    check(&cluster, "down", STILE_WARNING, "a:2379", "3 of 5 voting members answer: with one less");
    assert_null(find(&cluster, "not-named")); /* it may be one of those that are down */
    for (size_t i = 0; i < cluster.n_members; i++)
        cluster.members[i].leader = 0;
    check(&cluster, "down", STILE_DANGER, "a:2379", "has a leader");
    check(&cluster, "no-leader", STILE_DANGER, "b:2379", "Nothing can be locked");
}

static void one_that_is_cut_off(void **state)
{
    struct cluster_status cluster = healthy(3);
    (void)state;
    cluster.members[1].leader = 0;
    check(&cluster, "cut-off", STILE_WARNING, "b:2379", "others do");
    assert_null(find(&cluster, "no-leader"));
    assert_false(etcd_member_is_sound(&cluster, 1));
    assert_true(etcd_member_is_sound(&cluster, 2));
}

static void one_that_lags(void **state)
{
    struct cluster_status cluster = healthy(3);
    (void)state;
    cluster.members[2].applied = 4100;
    assert_null(find(&cluster, "lags"));
    cluster.members[2].applied = 3000;
    check(&cluster, "lags", STILE_WARNING, "c:2379", "2000 entries behind");
    cluster.members[2].cluster = 8; /* that of another cluster is another count */
    assert_null(find(&cluster, "lags"));
}

static void members_of_two_clusters(void **state)
{
    struct cluster_status cluster = healthy(3);
    (void)state;
    take_down(&cluster, 0);
    cluster.members[2].cluster = 8;
    cluster.members[2].id = 2;
    check(&cluster, "other-cluster", STILE_DANGER, "c:2379", "another cluster than b:2379");
    assert_null(find(&cluster, "named-twice"));
    assert_false(etcd_member_is_sound(&cluster, 2));
}

static void members_that_are_not_asked(void **state)
{
    struct cluster_status cluster = healthy(3);
    (void)state;
    cluster.n_members = 2;
    check(&cluster, "not-named", STILE_NOTE, "", "the member c is not in the URL");
    cluster.listed[2].learner = true;
    assert_null(find(&cluster, "not-named"));
    check(&cluster, "even", STILE_NOTE, "", "2 voting members");
    cluster.members[1].id = 1;
    check(&cluster, "named-twice", STILE_NOTE, "b:2379", "the same member as a:2379");
    cluster = healthy(1);
    check(&cluster, "one-member", STILE_WARNING, "", "tokens begin again");
}

/* ---- what they have in common ---- */

static void alarms_and_leases(void **state)
{
    struct cluster_status cluster = healthy(3);
    (void)state;
    cluster.alarms[cluster.n_alarms++] = (struct active_alarm){.id = 2, .kind = 1};
    cluster.alarms[cluster.n_alarms++] = (struct active_alarm){.kind = 2};
    check(&cluster, "no-space", STILE_DANGER, "", "database of b is full");
    check(&cluster, "corrupt", STILE_DANGER, "", "disagree");
    assert_null(find(&cluster, "alarms"));
    cluster.lease_seconds = 0;
    error_set(&cluster.lease_error, STILE_REFUSED, ETCD_ERROR_NO_SPACE, "full");
    assert_null(find(&cluster, "no-lease")); /* the alarm shows it */
    error_set(&cluster.lease_error, STILE_UNCERTAIN, ETCD_ERROR_TIMED_OUT, "no answer in time");
    check(&cluster, "no-lease", STILE_DANGER, "", "no answer in time");
    cluster.lease_seconds = 15;
    check(&cluster, "lease-long", STILE_WARNING, "", "shortest lease is 15 s");
}

static bool has(const char *version, size_t voters, const char *id)
{
    struct cluster_status cluster = healthy(voters);
    for (size_t i = 0; i < voters; i++)
        strcpy(cluster.members[i].version, version);
    return find(&cluster, id) != NULL;
}

static void defects_of_releases(void **state)
{
    struct cluster_status cluster = healthy(3);
    (void)state;
    assert_true(has("3.5.2", 3, "old-disagrees"));
    assert_false(has("3.5.3", 3, "old-disagrees"));
    assert_false(has("3.4.2", 3, "old-disagrees"));
    assert_true(has("3.4.20", 1, "old-forgets"));
    assert_false(has("3.4.20", 3, "old-forgets"));
    assert_true(has("3.4.37", 3, "old-keep-alive"));
    assert_false(has("3.4.38", 3, "old-keep-alive"));
    assert_true(has("3.6.4", 3, "old-keep-alive"));
    assert_true(has("3.3.27", 3, "old"));
    assert_true(has("3.5.99", 3, "version"));
    assert_true(has("3.7.0", 3, "version"));
    assert_true(has("4.0.0", 3, "version"));
    assert_false(has("3.5.2", 3, "version"));
    strcpy(cluster.members[1].version, "3.5.2");
    check(&cluster, "old-disagrees", STILE_DANGER, "b:2379", "Upgrade it to 3.5.3 or later");
    check(&cluster, "version", STILE_FINE, "a:2379, c:2379", "etcd 3.6.99");
    strcpy(cluster.members[2].version, "3.2.1");
    check(&cluster, "old", STILE_DANGER, "c:2379", "Upgrade it");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_is_well),
        cmocka_unit_test(who_is_down_and_how_many_may_follow),
        cmocka_unit_test(one_that_is_cut_off),
        cmocka_unit_test(one_that_lags),
        cmocka_unit_test(members_of_two_clusters),
        cmocka_unit_test(members_that_are_not_asked),
        cmocka_unit_test(alarms_and_leases),
        cmocka_unit_test(defects_of_releases),
    };
    return cmocka_run_group_tests_name("etcd_doctor", tests, NULL, NULL);
}
