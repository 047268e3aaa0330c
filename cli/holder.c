/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Which process has a lock, for messages: one look at the engine, that no message waits for long.
 *
 * Between the answer to a claim and the look the holder may have gone, so a message never says more
 * than the look has seen. */
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "process.h"

/* ---- looking ---- */

static void keep(char *out, size_t size, const char *text)
{
    char *safe = text_escape(text);
    snprintf(out, size, "%s", safe);
    free(safe);
}

/* The waiters before this process; -1: it is not among them, or the engine shows none. */
static int64_t count_ahead(const struct look *look, const struct stile_info *info)
{
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    for (size_t i = 0; i < info->waiters; i++) {
        const struct stile_claim_info *claim = &info->claims[info->holders + i];
        if (claim->pid == look->self && strcmp(claim->host, host) == 0)
            return (int64_t)i;
    }
    return -1;
}

static int on_info(const struct stile_info *info, void *data)
{
    struct look *look = data;
    look->holders = info->holders;
    look->ahead = count_ahead(look, info);
    if (info->holders == 0)
        return 0;
    const struct stile_claim_info *claim = &info->claims[0];
    look->ghost = claim->ghost;
    look->age_ms = claim->age_ms;
    look->expires_ms = claim->expires_ms;
    look->pid = claim->pid;
    /* A holder that is not of ours may have left no more than its owner value. */
    keep(look->host, sizeof look->host, claim->host[0] != '\0' ? claim->host : claim->owner);
    keep(look->command, sizeof look->command, claim->command);
    return 0;
}

static void on_done(struct stile_client *client, enum stile_status status,
                    const struct stile_error *err, void *data)
{
    struct look *look = data;
    (void)client;
    (void)err;
    look->under_way = false;
    look->answered = status == STILE_OK;
}

void look_begin(struct look *look, struct stile_client *client, const char *name, pid_t self)
{
    if (look->under_way)
        return;
    *look = (struct look){.name = name, .self = self, .ahead = -1, .under_way = true};
    if (stile_show_async(client, name, on_info, on_done, look, NULL) != STILE_OK)
        look->under_way = false;
    stile_client_dispatch(client);
}

void look_wait(const struct look *look, struct stile_client *client, int64_t until_ms)
{
    int64_t left_ms;
    /* One look at the clock: a difference that a second one made negative would mean no limit. */
    while (look->under_way && (left_ms = until_ms - now_ms()) > 0) {
        struct pollfd polled = {.fd = stile_client_fd(client), .events = POLLIN};
        if (poll(&polled, 1, (int)left_ms) > 0)
            stile_client_dispatch(client);
    }
}

/* ---- telling ---- */

/* A look at another name may have been under way, and is answered late. */
static bool is_answered(const struct look *look, const char *name)
{
    return look->answered && strcmp(look->name, name) == 0;
}

/* The time of day; with the date if that is another one. */
static void format_clock(char *out, size_t size, int64_t from_now_ms)
{
    time_t now = time(NULL), then = now + from_now_ms / 1000;
    struct tm here, there;
    out[0] = '\0';
    if (localtime_r(&now, &here) == NULL || localtime_r(&then, &there) == NULL)
        return;
    bool today = here.tm_yday == there.tm_yday && here.tm_year == there.tm_year;
    if (strftime(out, size, today ? "%H:%M:%S" : "%Y-%m-%d %H:%M:%S", &there) == 0)
        out[0] = '\0';
}

static void format_process(char *out, size_t size, const struct look *look)
{
    if (look->pid != 0)
        snprintf(out, size, "%s pid %" PRId64, look->host, look->pid);
    else
        snprintf(out, size, "%s", look->host);
}

static void format_others(char *out, size_t size, const struct look *look)
{
    out[0] = '\0';
    if (look->holders > 1)
        snprintf(out, size, " and %zu more", look->holders - 1);
}

/* "kept until 02:00:50 (by web3 pid 4711)": it has no holder. */
static void format_kept(char *out, size_t size, const struct look *look, const char *process)
{
    char clock[CLOCK_TEXT_MAX];
    format_clock(clock, sizeof clock, look->expires_ms);
    snprintf(out, size, "kept until %s%s%s%s", clock, process[0] != '\0' ? " (by " : "", process,
             process[0] != '\0' ? ")" : "");
}

/* "held by web3 pid 4711 (report) since 11:42:07"; without the time if the engine does not know. */
static void format_since(char *out, size_t size, const struct look *look)
{
    char clock[CLOCK_TEXT_MAX] = "", process[LOOK_PROCESS_MAX], others[40];
    format_process(process, sizeof process, look);
    format_others(others, sizeof others, look);
    if (look->age_ms >= 0)
        format_clock(clock, sizeof clock, -look->age_ms);
    if (look->ghost)
        format_kept(out, size, look, process);
    else
        snprintf(out, size, "held by %s%s%s%s%s%s%s", process, look->command[0] != '\0' ? " (" : "",
                 look->command, look->command[0] != '\0' ? ")" : "",
                 clock[0] != '\0' ? " since " : "", clock, others);
}

/* "held by web3 pid 4711 for 3m04s, 2 ahead" */
static void format_for(char *out, size_t size, const struct look *look)
{
    char age[DURATION_TEXT_MAX] = "", process[LOOK_PROCESS_MAX], others[40], ahead[40] = "";
    format_process(process, sizeof process, look);
    format_others(others, sizeof others, look);
    if (look->age_ms >= 0)
        duration_format(age, look->age_ms);
    if (look->ahead > 0)
        snprintf(ahead, sizeof ahead, ", %" PRId64 " ahead", look->ahead);
    if (look->ghost)
        format_kept(out, size, look, process);
    else
        snprintf(out, size, "held by %s%s%s%s", process, age[0] != '\0' ? " for " : "", age,
                 others);
    snprintf(out + strlen(out), size - strlen(out), "%s", ahead);
}

void look_say_waiting(const struct look *look, const char *name)
{
    char text[LOOK_TEXT_MAX] = "", *safe = text_escape(name);
    if (is_answered(look, name) && look->holders > 0)
        format_for(text, sizeof text, look);
    say("waiting for '%s'%s%s%s", safe, text[0] != '\0' ? " (" : "", text,
        text[0] != '\0' ? ")" : "");
    free(safe);
}

/* ---- hints that work as they are printed ---- */

/* A word for a shell. */
static void put_quoted(FILE *out, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_./:@%+=,-";
    if (word[0] != '\0' && word[strspn(word, plain)] == '\0') {
        fputs(word, out);
        return;
    }
    putc('\'', out);
    for (; *word != '\0'; word++)
        *word == '\'' ? fputs("'\\''", out) : putc(*word, out);
    putc('\'', out);
}

/* Without the password, which a terminal or a log would keep, but with the user: it is needed to
 * log in. */
static void put_url(FILE *out, const char *url)
{
    char redacted[STILE_URL_MAX + 1], whole[2 * sizeof redacted];
    const char *user = strstr(url, "://"), *rest;
    stile_url_redact(redacted, sizeof redacted, url);
    rest = strstr(redacted, "://");
    size_t len = user != NULL ? strcspn(user + 3, ":@/?#") : 0;
    bool has_user = len > 0 && rest != NULL && user[3 + strcspn(user + 3, "@/?#")] == '@';
    if (has_user)
        snprintf(whole, sizeof whole, "%.*s://%.*s@%s", (int)(rest - redacted), redacted, (int)len,
                 user + 3, rest + 3);
    put_quoted(out, has_user ? whole : redacted);
}

char *hint_command(const struct options *options, const char *verb, const char *name)
{
    char *text = NULL;
    size_t size;
    FILE *out = must_alloc(open_memstream(&text, &size));
    fprintf(out, "stile %s", verb);
    /* What the environment or a file names, the next command finds there as well. */
    if (options->given & OPT_ENGINE) {
        fputs(" -e ", out);
        put_url(out, engine_url(options));
    }
    if (name != NULL) {
        fputs(name[0] == '-' ? " -- " : " ", out);
        put_quoted(out, name);
    }
    fclose(out);
    return must_alloc(text);
}

/* ---- not granted ---- */

/* More would be cut, and half a command is worse than none. So is one with a name that a terminal
 * must not be sent as it is. */
#define HINT_MAX 400

void look_say_refused(const struct look *look, const struct options *options, const char *name,
                      enum stile_status status)
{
    char text[LOOK_TEXT_MAX], *safe = text_escape(name);
    char *hint = hint_command(options, "show", name);
    bool answered = is_answered(look, name);
    bool shown = strlen(hint) <= HINT_MAX && strcmp(safe, name) == 0;
    if (answered && look->holders > 0)
        format_since(text, sizeof text, look);
    else
        snprintf(text, sizeof text, "%s",
                 answered ? "held until a moment ago; try again" : stile_status_text(STILE_HELD));
    say("%s: %s%s%s%s", safe, status == STILE_TIMEOUT ? "not granted in time; " : "", text,
        shown ? "; see: " : "", shown ? hint : "");
    free(hint);
    free(safe);
}
