/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* contract [URL [FILTER]]     FILTER: which tests, with * and ?
 *
 * The URL comes from the command line or, where it has a password, from STILE_CONTRACT_URL. "@TMP@"
 * in it becomes a fresh directory. STILE_CONTRACT_ROUNDS: how often to go round where repetition
 * is the test. */
#include "contract.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SOAK_FACTOR 20

struct suite suite;

static int die(const char *what)
{
    fprintf(stderr, "contract: %s: %s\n", what, strerror(errno));
    return 1;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static void remove_dir(void)
{
    nftw(suite.dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static int make_dir(void)
{
    const char *tmp = getenv("TMPDIR");
    char path[sizeof suite.dir + 16];
    snprintf(suite.dir, sizeof suite.dir, "%s/stile-contract-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(suite.dir))
        return die(suite.dir);
    snprintf(path, sizeof path, "%s/state", suite.dir);
    if (mkdir(path, 0700) != 0)
        return die(path);
    snprintf(path, sizeof path, "%s/arena", suite.dir);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(struct arena)) != 0)
        return die(path);
    close(fd);
    setenv("STILE_CONTRACT_ARENA", path, 1);
    suite.arena = arena_map();
    return suite.arena ? 0 : die(path);
}

static int set_url(const char *url)
{
    const char *at = strstr(url, "@TMP@");
    int len = at ? snprintf(suite.url, sizeof suite.url, "%.*s%s/state%s", (int)(at - url), url,
                            suite.dir, at + strlen("@TMP@"))
                 : snprintf(suite.url, sizeof suite.url, "%s", url);
    if (len < 0 || (size_t)len >= sizeof suite.url) {
        fprintf(stderr, "contract: the URL is too long\n");
        return 1;
    }
    setenv("STILE_CONTRACT_URL", suite.url, 1);
    return 0;
}

static int set_up(const char *url)
{
    char pid[16];
    const char *rounds = getenv("STILE_CONTRACT_ROUNDS");
    suite.rounds = rounds ? (unsigned)strtoul(rounds, NULL, 10) : 0;
    suite.soak = getenv("STILE_SOAK") ? SOAK_FACTOR : 1;
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    setenv("STILE_CONTRACT_PID", pid, 1);
    signal(SIGPIPE, SIG_IGN); /* a peer that died early is a failed test, not our end */
    return make_dir() || set_url(url);
}

/* All parts are one group: TAP knows one plan a program. */
static int run_all(void)
{
    static struct CMUnitTest tests[256];
    size_t n = 0;
#define TAKE(part)                                                                                 \
    for (size_t i = 0; i < part##_tests_n && n < COUNT(tests); i++)                                \
        tests[n++] = part##_tests[i];
    SUITE_MAP(TAKE)
#undef TAKE
    return _cmocka_run_group_tests("contract", tests, n, NULL, NULL);
}

static int be_a_stray(void)
{
    close(STDIN_FILENO);
    close(STDOUT_FILENO);
    alarm(120);
    return pause();
}

int main(int argc, char **argv)
{
    const char *url = argc > 1 ? argv[1] : getenv("STILE_CONTRACT_URL");
    if (argc > 1 && strcmp(argv[1], "--child") == 0)
        return child_main();
    if (argc > 1 && strcmp(argv[1], "--stray") == 0)
        return be_a_stray();
    if (!url || !*url || argc > 3) {
        fprintf(stderr, "usage: contract [URL [FILTER]], or STILE_CONTRACT_URL=URL contract\n");
        return 64;
    }
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    int rc = set_up(url);
    if (!rc)
        rc = run_all();
    remove_dir();
    return rc;
}
