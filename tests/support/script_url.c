/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* test:[/file][?...]   ttl=MS  grant=now|never|busy  renew=ok|unknown|never|lost
 *                      lease=claim|session  detached=1  doctor=fine,note,warning,danger
 *
 * For the command: a server of its own for each client, or one in a file, so that several processes
 * meet there. The file is read and written under flock(2) around every request; waiters poll.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/url.h"
#include "support/script_wire.h"

/* ---- the file ---- */

struct state_file {
    char *path;
    FILE *open;
};

static void end_holder(struct place *place)
{
    if (place->holder)
        place->holder->at = GONE;
    place->holder = NULL;
}

static void import_holder(struct place *place, const char *owner, uint64_t since_ns,
                          uint64_t expires_ns)
{
    struct record *holder = place->holder;

    if (!holder || strcmp(holder->owner, owner) != 0) {
        end_holder(place);
        holder = model_record(place->model, place->name);
        if (!holder)
            abort();
        (void)snprintf(holder->owner, sizeof(holder->owner), "%s", owner);
    }
    place->holder = holder;
    holder->at = HOLDS;
    holder->token = place->token;
    holder->since_ns = since_ns;
    holder->expires_ns = expires_ns;
}

static void import_line(struct model *model, char *line)
{
    char owner[OWNER_SIZE];
    uint64_t token, since_ns, expires_ns;
    int at = 0;

    line[strcspn(line, "\n")] = '\0';
    if (sscanf(line, "%" SCNu64 " %47s %" SCNu64 " %" SCNu64 " %n", &token, owner, &since_ns,
               &expires_ns, &at) != 4 ||
        at == 0)
        return;
    struct place *place = model_place(model, line + at);
    if (!place)
        abort();
    place->token = token;
    if (strcmp(owner, "-") == 0)
        end_holder(place);
    else
        import_holder(place, owner, since_ns, expires_ns);
}

static void before(struct script *script)
{
    struct state_file *file = script->data;
    char line[1024];
    int fd = open(file->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

    while (fd >= 0 && flock(fd, LOCK_EX) != 0 && errno == EINTR)
        ;
    file->open = fd >= 0 ? fdopen(fd, "r+") : NULL;
    if (!file->open) {
        perror(file->path);
        abort();
    }
    while (fgets(line, sizeof(line), file->open))
        import_line(&script->model, line);
}

static void export_place(FILE *out, const struct place *place)
{
    const struct record *holder = place->holder;

    (void)fprintf(out, "%" PRIu64 " %s %" PRIu64 " %" PRIu64 " %s\n", place->token,
                  holder ? holder->owner : "-", holder ? holder->since_ns : 0,
                  holder ? holder->expires_ns : 0, place->name);
}

static void after(struct script *script)
{
    struct state_file *file = script->data;

    rewind(file->open);
    if (ftruncate(fileno(file->open), 0) != 0)
        abort();
    for (size_t i = 0; i < MODEL_BUCKETS; i++) {
        for (struct place *place = script->model.buckets[i]; place; place = place->next)
            export_place(file->open, place);
    }
    (void)fclose(file->open); /* which ends the flock */
    file->open = NULL;
}

static enum stile_status use_file(struct script *script, struct engine *engine, const char *path,
                                  struct stile_error *err)
{
    struct state_file *file = calloc(1, sizeof(*file));

    script->data = file;
    if (!file || !(file->path = strdup(path)) ||
        loop_random(engine->loop, &script->model.salt, sizeof(script->model.salt)))
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    script->before = before;
    script->after = after;
    script->polled = true;
    return STILE_OK;
}

void script_url_free(struct script *script)
{
    struct state_file *file = script->data;

    if (file)
        free(file->path);
    free(file);
}

/* ---- the parameters ---- */

static enum stile_status choose(struct script_rule *rule, const char *value,
                                const char *const *words, const enum script_act *acts,
                                struct stile_error *err)
{
    if (!value)
        return STILE_OK;
    for (size_t i = 0; words[i]; i++) {
        if (strcmp(words[i], value) == 0) {
            rule->act = acts[i];
            return STILE_OK;
        }
    }
    return error_set(err, STILE_MISUSE, 0, "test: engine: what is '%s'?", value);
}

static enum stile_status read_params(struct script *script, const struct url *url,
                                     struct stile_error *err)
{
    static const char *const grants[] = {"now", "never", "busy", NULL};
    static const enum script_act grant_acts[] = {SCRIPT_MODEL, SCRIPT_NEVER, SCRIPT_BUSY};
    static const char *const renewals[] = {"ok", "never", "unknown", "lost", NULL};
    static const enum script_act renewal_acts[] = {SCRIPT_MODEL, SCRIPT_NEVER, SCRIPT_UNKNOWN,
                                                   SCRIPT_LOST};
    const char *ttl = url_param(url, "ttl");
    uint64_t ttl_ns = ttl ? strtoull(ttl, NULL, 10) * NS_PER_MS : 0;

    script->always[SCRIPT_CLAIM].ttl_ns = ttl_ns;
    script->always[SCRIPT_RESUME].ttl_ns = ttl_ns;
    script->always[SCRIPT_RENEW].ttl_ns = ttl_ns;
    script->always[SCRIPT_CLAIM].hint_ns = 20 * NS_PER_MS;
    enum stile_status status =
        choose(&script->always[SCRIPT_CLAIM], url_param(url, "grant"), grants, grant_acts, err);
    if (!status)
        status = choose(&script->always[SCRIPT_QUERY], url_param(url, "show"), renewals,
                        renewal_acts, err);
    return status ? status
                  : choose(&script->always[SCRIPT_RENEW], url_param(url, "renew"), renewals,
                           renewal_acts, err);
}

/* A finding for each word, with texts that no terminal should see as they are. */
static void read_findings(struct script *script, const char *words)
{
    static const struct stile_finding known[] = {
        {STILE_FINE, "fine", "here", "all is as it should be", "", "", ""},
        {STILE_NOTE, "note", "", "it is \033[31mtest:", "nobody relies on it", "", ""},
        {STILE_WARNING, "weak", "there", "something is weak", "it may break", "be strong", ""},
        {STILE_DANGER, "bad", "there", "it is on fire",
         "a process that stays in a fire for too long gets hurt, and so does everything it has in "
         "his hands, and in his pockets",
         "leave the house", "run now\nrun fast"},
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (words && strstr(words, i == STILE_WARNING  ? "warning"
                                   : i == STILE_DANGER ? "danger"
                                                       : known[i].id))
            script->findings[script->n_findings++] = known[i];
    }
}

static void choose_class(struct engine *engine, const struct url *url)
{
    const char *lease = url_param(url, "lease");
    bool session = lease && strcmp(lease, "session") == 0;

    engine->class = script_variant(session ? STILE_LEASE_SESSION : STILE_LEASE_CLAIM,
                                   url_param(url, "detached") ? SCRIPT_DETACHED : 0);
    engine->caps = engine->class->caps;
    if (url_param(url, "bare")) {
        engine->caps.token = false;
        engine->caps.token_is = "none: nothing is set up; run `stile setup URL` first";
    }
}

enum stile_status script_from_url(struct script **out, struct engine *engine, const struct url *url,
                                  struct stile_error *err)
{
    struct script *script = script_new(NULL);
    enum stile_status status;

    if (!script)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    script->owned = true;
    read_findings(script, url_param(url, "doctor"));
    status = read_params(script, url, err);
    if (!status && *url->path)
        status = use_file(script, engine, url->path, err);
    if (status) {
        script_free(script);
        return status;
    }
    choose_class(engine, url);
    *out = script;
    return STILE_OK;
}
