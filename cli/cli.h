/* What the verbs of the command share. The command sees the library only through stile.h. */
#ifndef STILE_CLI_H
#define STILE_CLI_H

#include <stdio.h>

#include "stile.h"

#define PRINTF_LIKE(f, a) __attribute__((format(printf, f, a)))

/* Beside these, run ends with its command's own code, or 128 + N for a signal. */
enum exit_code {
    EXIT_WARNING = 1, /* doctor */
    EXIT_DANGER = 2,
    EXIT_USAGE = 64,
    EXIT_ENGINE = 69, /* unreachable, refused, damaged or not able to */
    EXIT_OUTPUT = 74, /* stdout could not be written */
    EXIT_NOT_ACQUIRED = 75,
    EXIT_LOST = 76,
    EXIT_CANNOT_EXEC = 126,
    EXIT_NO_COMMAND = 127,
};

/* ---- options.c ---- */

enum option_bit {
    OPT_ENGINE = 1 << 0,
    OPT_JSON = 1 << 1,
    OPT_TRY = 1 << 2,
    OPT_WAIT = 1 << 3,
    OPT_TTL = 1 << 4,
    OPT_SHARED = 1 << 5,
    OPT_SLOTS = 1 << 6,
    OPT_HOLD = 1 << 7,
    OPT_DELAY = 1 << 8,
    OPT_PROFILE = 1 << 9,
    OPT_GRACE = 1 << 10,
    OPT_QUIET = 1 << 11,
    OPT_OWNER = 1 << 12,
    OPT_TOKEN = 1 << 13,
    OPT_YES = 1 << 14,
    OPT_HELP = 1 << 15,
    OPT_ADOPT = 1 << 16,
    OPT_PRINT = 1 << 17,
    OPT_PROCLAIM = 1 << 18,
    OPT_COMMAND = 1 << 19, /* takes `-- CMD ARG...` */
    OPT_KEY = 1 << 20,     /* from here on: jobs */
    OPT_DUE = 1 << 21,
    OPT_PARALLEL = 1 << 22,
    OPT_TRIES = 1 << 23,
    OPT_BACKOFF = 1 << 24,
    OPT_LEASE = 1 << 25,
    OPT_FINISH = 1 << 26,
    OPT_ONCE = 1 << 27,
    OPT_DRAIN = 1 << 28,
    OPT_RESIZE = 1 << 29, /* doctor */
};

#define OPT_CLAIM                                                                                  \
    (OPT_TRY | OPT_WAIT | OPT_TTL | OPT_SHARED | OPT_SLOTS | OPT_HOLD | OPT_DELAY | OPT_PROFILE)

struct options {
    unsigned given; /* bits of enum option_bit */
    char *engine;
    char *hidden;    /* our copy of it, where engine_hide_secrets() made one */
    int64_t wait_ms; /* as for stile_lock_acquire() */
    int64_t ttl_ms, hold_ms, delay_ms, grace_ms;
    uint64_t slots, token;
    enum stile_profile profile;
    char *owner, *proclaim;
    char *key;
    int64_t due_ms, backoff_ms, lease_ms, finish_ms;
    uint64_t parallel, tries;
    char **args; /* what is neither an option nor the command */
    size_t n_args;
    char **command; /* NULL-terminated, after `--` */
};

struct verb {
    const char *name;
    unsigned accepts; /* bits of enum option_bit */
    size_t min_args, max_args;
    const char *argument; /* what is missing if there are too few; NULL: NAME */
    const char *usage;    /* behind `stile VERB`, without the options every verb has */
    const char *about;
    int (*run)(struct options *options);
};

extern const struct verb verb_run, verb_acquire, verb_renew, verb_release, verb_ls, verb_show,
    verb_watch, verb_break, verb_caps, verb_doctor, verb_setup, verb_jobs_add, verb_jobs_work,
    verb_jobs_ls, verb_jobs_retry, verb_jobs_drop;

/* 0, or EXIT_USAGE after it has said why. argv is that of the verb, which is argv[0]; it is
 * reordered: the arguments come first. */
int options_parse(struct options *options, const struct verb *verb, int argc, char **argv);
void options_print_help(const struct verb *verb);
/* Of several verbs whose names begin with the same word. */
void options_print_group(const struct verb *const *verbs, size_t n);

/* Names, mode, times and profile as the library wants them. */
struct stile_lock_options options_for_lock(const struct options *options);

/* ---- duration.c ---- */

/* `250ms`, `10s`, `5m`, `2h`, `1d`. NULL, or what is wrong with it. */
const char *duration_parse(int64_t *ms, const char *text);

/* `250ms`, `12s`, `3m04s`, `2h10m`, `5d03h`. */
#define DURATION_TEXT_MAX 32
const char *duration_format(char out[DURATION_TEXT_MAX], int64_t ms);

/* ---- text.c ---- */

/* Length of the UTF-8 character at s, or 0: not one (text ends there or a byte is out of place). */
size_t text_decode(uint32_t *code, const char *s);
/* Terminal columns of a text that text_escape() made. */
size_t text_columns(const char *s);
/* A copy in which nothing moves the cursor, colours the terminal or turns the writing direction. */
char *text_escape(const char *s);

/* ---- table.c ---- */

struct table {
    const char *const *heads; /* NULL-terminated */
    size_t columns;
    char **cells;
    size_t n_cells, room;
};

void table_start(struct table *table, const char *const *heads);
void table_add(struct table *table, const char *text); /* cell by cell, row by row */
void table_addf(struct table *table, const char *format, ...) PRINTF_LIKE(2, 3);
void table_finish(struct table *table, FILE *out); /* prints, if out isn't NULL, and frees */

/* ---- json.c ---- */

struct json {
    FILE *out;
    bool comma; /* the next member needs one before it */
};

/* key NULL: an element of an array, or the whole. */
void json_open(struct json *json, const char *key, char bracket);
void json_close(struct json *json, char bracket);
/* Bytes that aren't UTF-8 become U+FFFD, and a member KEY_hex carries all bytes. */
void json_text(struct json *json, const char *key, const char *text);
void json_int(struct json *json, const char *key, int64_t number);
void json_uint(struct json *json, const char *key, uint64_t number);
void json_bool(struct json *json, const char *key, bool value);
void json_null(struct json *json, const char *key);

/* ---- say.c ---- */

/* One line on stderr, "stile: " before it, in one write. */
void say(const char *format, ...) PRINTF_LIKE(1, 2);
/* Says what failed and returns the exit code for it. */
int say_failure(const char *what, enum stile_status status, const struct stile_error *err);
int exit_code_of(enum stile_status status);
/* Flushes stdout and says so if that did not work. */
int finish_output(int code);
/* Out of memory here means that nothing useful can be done any more. */
void *must_alloc(void *memory);

/* ---- engine.c ---- */

/* -e, else $STILE_ENGINE, else "local:". */
const char *engine_url(const struct options *options);
/* Takes a URL with secrets out of our command line, where ps shows it to everybody. */
void engine_hide_secrets(struct options *options);
/* caps, doctor: a URL that is given without -e. */
void engine_from_argument(struct options *options);
/* 0, or an exit code after it has said why. label: what `stile show` prints as our command. */
int engine_open(struct stile_client **client, const struct options *options, bool threadless,
                const char *label);
/* Also what would be refused for locks. */
int engine_open_to_examine(struct stile_client **client, const struct options *options,
                           const char *label);
/* For the verbs whose claims outlive their process: refuses engines without such claims. */
int engine_open_detached(struct stile_client **client, const struct options *options,
                         const char *verb);

/* ---- info.c ---- */

const char *info_mode(enum stile_mode mode);
/* `pid@host command`, or what keeps the name back. Yours to free. */
char *info_holder(const struct stile_claim_info *claim);
/* name, token, holders and waiters of one name; key as for json_open(). */
void info_json(struct json *json, const char *key, const struct stile_info *info);
/* The same without the brackets around it. */
void info_json_members(struct json *json, const struct stile_info *info);

#endif
