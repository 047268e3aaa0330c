/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The command itself: its environment and its start. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "process.h"

/* High enough not to collide with a descriptor that a script uses. */
#define LIFE_FD 100

/* A nested run must not show its command the outer lock, so all of these are replaced. The
 * variables of the job that it runs for are kept. */
static const char *const of_locks[] = {"STILE_NAME=",   "STILE_NAMES=",       "STILE_TOKEN=",
                                       "STILE_TOKENS=", "STILE_ISSUER=",      "STILE_RESOURCE=",
                                       "STILE_ENGINE=", "STILE_ENGINE_FROM=", NULL};
static const char *const of_jobs[] = {
    "STILE_QUEUE=", "STILE_JOB_ID=", "STILE_JOB_KEY=", "STILE_JOB_TRIES=", NULL};

static bool is_one_of(const char *variable, const char *const *names)
{
    for (; *names != NULL; names++) {
        if (strncmp(variable, *names, strlen(*names)) == 0)
            return true;
    }
    return false;
}

/* The environment without these variables, and with room for them. */
static char **inherited(size_t *kept, bool for_job)
{
    size_t count = 0;
    while (environ[count] != NULL)
        count++;
    char **out = must_alloc(calloc(count + 12, sizeof *out));
    *kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (!is_one_of(environ[i], of_locks) && !(for_job && is_one_of(environ[i], of_jobs)))
            out[(*kept)++] = environ[i];
    }
    return out;
}

static char *variable(const char *key, const char *value)
{
    char *text = NULL;
    return must_alloc(asprintf(&text, "%s=%s", key, value) < 0 ? NULL : text);
}

static void add_engine(char **out, size_t *kept, const struct options *options)
{
    char url[STILE_URL_MAX + 1];
    char *place = credentials_offer(engine_url(options));
    stile_url_redact(url, sizeof url, engine_url(options));
    out[(*kept)++] = variable("STILE_ENGINE", url);
    if (place != NULL)
        out[(*kept)++] = variable("STILE_ENGINE_FROM", place);
    free(place);
}

/* All names and all tokens, one per line, in the same order. Without a token the line is empty: a
 * guard would accept a 0 always, or never. */
static void add_lists(char **names, char **tokens, struct stile_lock *const *locks, size_t n)
{
    FILE *name_list, *token_list;
    size_t size;
    name_list = must_alloc(open_memstream(names, &size));
    token_list = must_alloc(open_memstream(tokens, &size));
    fputs("STILE_NAMES=", name_list);
    fputs("STILE_TOKENS=", token_list);
    for (size_t i = 0; i < n; i++) {
        uint64_t token;
        fprintf(name_list, "%s%s", i > 0 ? "\n" : "", stile_lock_name(locks[i]));
        fputs(i > 0 ? "\n" : "", token_list);
        if (stile_lock_token(locks[i], &token) == STILE_OK)
            fprintf(token_list, "%" PRIu64, token);
    }
    fclose(name_list);
    fclose(token_list);
    must_alloc(*names);
    must_alloc(*tokens);
}

static char *number(const char *key, uint64_t value)
{
    char digits[24];
    snprintf(digits, sizeof digits, "%" PRIu64, value);
    return variable(key, digits);
}

char **child_environment(const struct options *options, struct stile_lock *const *locks, size_t n,
                         const char *first)
{
    char issuer[STILE_ISSUER_MAX + 1];
    size_t kept, i = 0;
    uint64_t token;
    char **out = inherited(&kept, false);
    while (i < n - 1 && strcmp(stile_lock_name(locks[i]), first) != 0)
        i++;
    add_engine(out, &kept, options);
    out[kept++] = variable("STILE_NAME", stile_lock_name(locks[i]));
    if (stile_lock_token(locks[i], &token) == STILE_OK) {
        out[kept++] = number("STILE_TOKEN", token);
        stile_lock_issuer(locks[i], issuer, sizeof issuer);
        out[kept++] = variable("STILE_ISSUER", issuer);
    }
    if (options->given & OPT_GUARD)
        out[kept++] = variable("STILE_RESOURCE", strchr(options->guard, '#') + 1);
    if (n > 1)
        add_lists(&out[kept], &out[kept + 1], locks, n);
    return out;
}

char **child_environment_of_job(const struct options *options, const struct stile_job *job)
{
    size_t kept;
    char **out = inherited(&kept, true);
    add_engine(out, &kept, options);
    out[kept++] = variable("STILE_QUEUE", job->queue);
    out[kept++] = number("STILE_JOB_ID", job->id);
    out[kept++] = number("STILE_JOB_TRIES", job->tries);
    out[kept++] = number("STILE_TOKEN", job->token);
    if (job->key != NULL)
        out[kept++] = variable("STILE_JOB_KEY", job->key);
    return out;
}

static bool is_inherited(const char *variable)
{
    char **at = environ;
    while (*at != NULL && *at != variable)
        at++;
    return *at != NULL;
}

void child_environment_free(char **environment)
{
    for (char **at = environment; *at != NULL; at++) {
        if (!is_inherited(*at))
            free(*at);
    }
    free(environment);
}

/* Whether a command without a path is anywhere in $PATH. */
static bool is_in_path(const char *command)
{
    const char *at = secure_getenv("PATH");
    while (at != NULL && *at != '\0') {
        char file[4096];
        int len = (int)strcspn(at, ":");
        snprintf(file, sizeof file, "%.*s/%s", len, at, command);
        if (access(file, F_OK) == 0)
            return true;
        at += len + (at[len] == ':');
    }
    return false;
}

/* As a shell would end. Runs in the new process. */
static void exec_failed(const char *command)
{
    int failure = errno;
    /* execvp() also reports EACCES for a directory of $PATH that cannot be searched; a shell
     * reports "not found". */
    if (failure == EACCES && strchr(command, '/') == NULL && !is_in_path(command))
        failure = ENOENT;
    say("%s: %s", command, strerrordesc_np(failure));
    _exit(failure == ENOENT ? EXIT_NO_COMMAND : EXIT_CANNOT_EXEC);
}

/* Set by the child if the command could not be executed. Shared memory: vfork() may be a fork(), as
 * it is for valgrind and ThreadSanitizer. */
static bool *not_executed;

static bool make_flag(void)
{
    if (not_executed == NULL) {
        void *page = mmap(NULL, sizeof *not_executed, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        not_executed = page == MAP_FAILED ? NULL : page;
    }
    if (not_executed != NULL)
        *not_executed = false;
    return not_executed != NULL;
}

bool child_was_not_executed(void)
{
    return not_executed != NULL && *not_executed;
}

pid_t child_start(char *const *command, char *const *environment, const struct signals *signals,
                  const int standard[3], int life)
{
    pid_t warden = getpid();
    if (!make_flag())
        return -1;
    /* A copy, because a vfork() that is a fork() makes the library close its descriptors. */
    int life_copy = life < 0 ? -1 : fcntl(life, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    /* Not fork(): the warden has an engine mapped, and copying its page tables only to throw them
     * away takes longer than all else here. The child changes nothing that they share but this
     * flag. */
    pid_t pid = vfork();
    if (pid != 0) {
        if (life_copy >= 0)
            close(life_copy);
        return pid;
    }
    /* If the warden is killed, the kernel kills the command. That covers later deaths only, so
     * check for an earlier one. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != warden)
        _exit(EXIT_LOST);
    signals_restore(signals);
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (standard[fd] >= 0 && dup2(standard[fd], fd) < 0)
            _exit(EXIT_CANNOT_EXEC);
    }
    /* If front and warden are killed at once, the rest of the tree keeps the lock through this. */
    if (life_copy >= 0 && fcntl(life_copy, F_DUPFD, LIFE_FD) < 0)
        fcntl(life_copy, F_DUPFD, STDERR_FILENO + 1);
    execvpe(command[0], command, environment);
    *not_executed = true;
    exec_failed(command[0]);
    _exit(EXIT_CANNOT_EXEC);
}
