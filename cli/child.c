/* The command itself: its environment and its start. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "mutant.h"
#include "process.h"

/* A nested run must not show its command the outer lock: all of ours are replaced, none kept. */
static bool is_ours(const char *variable)
{
    static const char *const ours[] = {
        "STILE_NAME=", "STILE_NAMES=", "STILE_TOKEN=", "STILE_TOKENS=", "STILE_ENGINE="};
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++) {
        if (strncmp(variable, ours[i], strlen(ours[i])) == 0)
            return true;
    }
    return false;
}

static char *variable(const char *key, const char *value)
{
    char *text = NULL;
    return must_alloc(asprintf(&text, "%s=%s", key, value) < 0 ? NULL : text);
}

static char *engine_variable(const struct options *options)
{
    char url[STILE_URL_MAX + 1];
    stile_url_redact(url, sizeof url, engine_url(options));
    return variable("STILE_ENGINE", url);
}

/* Lines of all names and of all tokens, in the same order. */
static void add_lists(char **names, char **tokens, struct stile_lock *const *locks, size_t n)
{
    FILE *name_list, *token_list;
    size_t size;
    name_list = must_alloc(open_memstream(names, &size));
    token_list = must_alloc(open_memstream(tokens, &size));
    fputs("STILE_NAMES=", name_list);
    fputs("STILE_TOKENS=", token_list);
    for (size_t i = 0; i < n; i++) {
        uint64_t token = 0;
        stile_lock_token(locks[i], &token);
        fprintf(name_list, "%s%s", i > 0 ? "\n" : "", stile_lock_name(locks[i]));
        fprintf(token_list, "%s%" PRIu64, i > 0 ? "\n" : "", token);
    }
    fclose(name_list);
    fclose(token_list);
    must_alloc(*names);
    must_alloc(*tokens);
}

char **child_environment(const struct options *options, struct stile_lock *const *locks, size_t n)
{
    size_t count = 0, kept = 0;
    while (environ[count] != NULL)
        count++;
    char **out = must_alloc(calloc(count + 6, sizeof *out));
    for (size_t i = 0; i < count; i++) {
#ifdef MUTANT_CLI_OUTER_LOCK_SHOWN
        if (strncmp(environ[i], "STILE_NAMES=", 12) == 0)
            out[kept++] = environ[i];
#endif
        if (!is_ours(environ[i]))
            out[kept++] = environ[i];
    }
    out[kept++] = engine_variable(options);
    out[kept++] = variable("STILE_NAME", stile_lock_name(locks[0]));
    uint64_t token;
    if (stile_lock_token(locks[0], &token) == STILE_OK) {
        char digits[24];
        snprintf(digits, sizeof digits, "%" PRIu64, token);
        out[kept++] = variable("STILE_TOKEN", digits);
    }
    if (n > 1) {
        add_lists(&out[kept], &out[kept + 1], locks, n);
        kept += 2;
    }
    return out;
}

void child_environment_free(char **environment)
{
    for (char **at = environment; *at != NULL; at++) {
        if (is_ours(*at))
            free(*at);
    }
    free(environment);
}

/* Whether a command without a path is anywhere in $PATH. */
static bool is_in_path(const char *command)
{
    const char *at = getenv("PATH");
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
    /* Told when a directory of $PATH is closed to us; a shell just doesn't find it there. */
    if (failure == EACCES && strchr(command, '/') == NULL && !is_in_path(command))
        failure = ENOENT;
    say("%s: %s", command, strerrordesc_np(failure));
    _exit(failure == ENOENT ? EXIT_NO_COMMAND : EXIT_CANNOT_EXEC);
}

pid_t child_start(char *const *command, char *const *environment, const struct signals *signals)
{
    pid_t warden = getpid();
    /* Not fork(): the warden has an engine mapped, and copying its page tables only to throw them
     * away takes longer than all else here. Nothing in the child changes what they share. */
    pid_t pid = vfork();
    if (pid != 0)
        return pid;
    /* Should the warden be killed, nobody else stands between the command and the next holder. The
     * setting is for deaths to come, so ask for one that has come. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != warden)
        _exit(EXIT_LOST);
    signals_restore(signals);
    execvpe(command[0], command, environment);
    exec_failed(command[0]);
    _exit(EXIT_CANNOT_EXEC);
}
