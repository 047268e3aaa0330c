/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What the verbs of the command share. The command sees the library only through stile.h. */
#ifndef STILE_CLI_H
#define STILE_CLI_H

#include <stdio.h>
#include <sys/types.h>

#include "stile.h"

#define PRINTF_LIKE(f, a) __attribute__((format(printf, f, a)))

/* Beside these, run ends with its command's own code, or 128 + N for a signal. */
enum exit_code {
    EXIT_NO = 1, /* cell: there is none, or it has another version; doctor: there are warnings;
                  * torture: it proved nothing */
    EXIT_DANGER = 2,
    EXIT_USAGE = 64,
    EXIT_ENGINE = 69, /* unreachable, refused, damaged or not able to */
    EXIT_OUTPUT = 74, /* stdout could not be written */
    EXIT_NOT_ACQUIRED = 75,
    EXIT_LOST = 76,
    EXIT_STALE = 77,    /* a guard has seen a larger token */
    EXIT_FOREIGN = 78,  /* a guard's tokens come from another lock */
    EXIT_MISMATCH = 79, /* once: the key was used with another fingerprint */
    EXIT_VIOLATED = 80, /* torture: a promise was broken */
    EXIT_CANNOT_EXEC = 126,
    EXIT_NO_COMMAND = 127,
};

/* ---- options.c ---- */

/* One bit for each option. */
#define OPT_ENGINE     (UINT64_C(1) << 0)
#define OPT_JSON       (UINT64_C(1) << 1)
#define OPT_TRY        (UINT64_C(1) << 2)
#define OPT_WAIT       (UINT64_C(1) << 3)
#define OPT_TTL        (UINT64_C(1) << 4)
#define OPT_SHARED     (UINT64_C(1) << 5)
#define OPT_SLOTS      (UINT64_C(1) << 6)
#define OPT_HOLD       (UINT64_C(1) << 7)
#define OPT_DELAY      (UINT64_C(1) << 8)
#define OPT_PROFILE    (UINT64_C(1) << 9)
#define OPT_GRACE      (UINT64_C(1) << 10)
#define OPT_QUIET      (UINT64_C(1) << 11)
#define OPT_OWNER      (UINT64_C(1) << 12)
#define OPT_TOKEN      (UINT64_C(1) << 13)
#define OPT_YES        (UINT64_C(1) << 14)
#define OPT_HELP       (UINT64_C(1) << 15)
#define OPT_ADOPT      (UINT64_C(1) << 16)
#define OPT_PRINT      (UINT64_C(1) << 17)
#define OPT_PROCLAIM   (UINT64_C(1) << 18)
#define OPT_COMMAND    (UINT64_C(1) << 19) /* takes `-- CMD ARG...` */
#define OPT_KEY        (UINT64_C(1) << 20) /* from here on: jobs */
#define OPT_DUE        (UINT64_C(1) << 21)
#define OPT_PARALLEL   (UINT64_C(1) << 22)
#define OPT_TRIES      (UINT64_C(1) << 23)
#define OPT_BACKOFF    (UINT64_C(1) << 24)
#define OPT_LEASE      (UINT64_C(1) << 25)
#define OPT_FINISH     (UINT64_C(1) << 26)
#define OPT_ONCE       (UINT64_C(1) << 27)
#define OPT_DRAIN      (UINT64_C(1) << 28)
#define OPT_LEAVE      (UINT64_C(1) << 29) /* run */
#define OPT_LABEL      (UINT64_C(1) << 30)
#define OPT_CODE       (UINT64_C(1) << 31)
#define OPT_RESIZE     (UINT64_C(1) << 32) /* doctor */
#define OPT_FENCED     (UINT64_C(1) << 33) /* run */
#define OPT_WATCH      (UINT64_C(1) << 34) /* leader */
#define OPT_TORTURE    (UINT64_C(1) << 35) /* torture: one bit for all its own options */
#define OPT_LINES      (UINT64_C(1) << 36) /* jobs add */
#define OPT_NULL       (UINT64_C(1) << 37)
#define OPT_STATE      (UINT64_C(1) << 38) /* jobs ls */
#define OPT_PAYLOAD    (UINT64_C(1) << 39) /* jobs show */
#define OPT_ISSUER     (UINT64_C(1) << 40) /* cells, guards, files */
#define OPT_STRICT     (UINT64_C(1) << 41)
#define OPT_IF_VERSION (UINT64_C(1) << 42) /* cell */
#define OPT_GUARD      (UINT64_C(1) << 43) /* run */
#define OPT_DIALECT    (UINT64_C(1) << 44) /* guard sql, lua, nginx */
#define OPT_SCRIPT     (UINT64_C(1) << 45)
#define OPT_LISTEN     (UINT64_C(1) << 46)
#define OPT_UPSTREAM   (UINT64_C(1) << 47)
#define OPT_STATE_DIR  (UINT64_C(1) << 48)
#define OPT_REQUIRE    (UINT64_C(1) << 49)
#define OPT_MODE       (UINT64_C(1) << 50) /* file put */
#define OPT_KEEP       (UINT64_C(1) << 51) /* cell put, update; once */
#define OPT_RATE       (UINT64_C(1) << 52) /* pace */
#define OPT_BURST      (UINT64_C(1) << 53)
#define OPT_PACE       (UINT64_C(1) << 54) /* run */
#define OPT_ADVICE     (UINT64_C(1) << 62) /* advise: the answers, one bit for all of them */
#define OPT_TABLE      (UINT64_C(1) << 63)

#define OPT_KEEP_FAILURES (UINT64_C(1) << 57) /* once */
#define OPT_FINGERPRINT   (UINT64_C(1) << 58)
#define OPT_SLOT          (UINT64_C(1) << 59)
#define OPT_SHOW          (UINT64_C(1) << 60)
#define OPT_FORGET        (UINT64_C(1) << 61)

#define OPT_CLAIM                                                                                  \
    (OPT_TRY | OPT_WAIT | OPT_TTL | OPT_SHARED | OPT_SLOTS | OPT_HOLD | OPT_DELAY | OPT_PROFILE)

struct rate {
    uint64_t count;
    int64_t per_ms;
};

struct options {
    uint64_t given; /* bits OPT_... */
    char *engine;
    char *hidden, *hidden_guard; /* our copies, where engine_hide_secrets() made one */
    int64_t wait_ms;             /* as for stile_lock_acquire() */
    int64_t ttl_ms, hold_ms, delay_ms, grace_ms;
    uint64_t slots, token;
    enum stile_profile profile;
    char *owner, *proclaim, *label, *issuer, *guard;
    uint64_t if_version;
    char *dialect, *script, *listen, *upstream, *state_dir, *require; /* guard sql, lua, nginx */
    uint64_t code;                                                    /* for 69, 75 and 76 */
    uint64_t mode;                                                    /* of a file; 0: not given */
    char *key, *state;
    int64_t due_ms, backoff_ms, lease_ms, finish_ms, keep_ms, slot_ms;
    char *fingerprint;
    char *advice[6]; /* the answers, as in advice.h */
    uint64_t parallel, tries;
    struct rate rate;
    uint64_t burst;
    int64_t for_ms; /* torture */
    uint64_t clients, names;
    char *inject, *fault, *timeline, *history;
    char **args; /* what is neither an option nor the command */
    size_t n_args;
    char **command; /* NULL-terminated, after `--` */
};

/* The program of a verb that is one of its own. */
struct helper {
    const char *program;
    const char *part;    /* its directory in the build tree */
    const char *package; /* of Debian, that contains it; NULL: none does */
    const char *needs;   /* what a build needs to contain it */
};

/* How one verb's help describes an option that others describe differently. */
struct wording {
    uint64_t bit; /* 0: the end of the list */
    const char *about;
};

struct verb {
    const char *name;
    const struct helper *helper; /* NULL: the verb is part of this program, and has what follows */
    uint64_t accepts;            /* bits OPT_... */
    uint64_t alone;              /* bits of the options with which no command is given */
    bool without_engine;         /* the verb uses none, and -e is no option of it */
    bool negatives;              /* a word such as -2 is an operand */
    size_t min_args, max_args;
    const char *argument;          /* what is missing if there are too few; NULL: NAME */
    const char *operands;          /* what follows the options in the usage line */
    const char *about;             /* a line for each paragraph; print_wrapped() breaks them */
    const struct wording *wording; /* of some options, or NULL */
    int (*run)(struct options *options);
};

extern const struct verb verb_elect, verb_leader, verb_run, verb_acquire, verb_renew, verb_release,
    verb_ls, verb_show, verb_watch, verb_break, verb_advise, verb_caps, verb_doctor, verb_setup,
    verb_jobs_add, verb_jobs_work, verb_jobs_ls, verb_jobs_show, verb_jobs_retry, verb_jobs_drop,
    verb_file_put, verb_file_rm, verb_file_show, verb_cell_get, verb_cell_put, verb_cell_rm,
    verb_cell_ls, verb_cell_watch, verb_cell_update, verb_guard_check, verb_guard_raise,
    verb_guard_show, verb_guard_reset, verb_guard_install, verb_guard_sql, verb_guard_lua,
    verb_guard_nginx, verb_crdt_counter_add, verb_crdt_counter_get, verb_crdt_set_add,
    verb_crdt_set_rm, verb_crdt_set_ls, verb_once, verb_pace, verb_sim, verb_play, verb_torture;

/* Shared by the verbs of jobs. */
extern const struct wording jobs_wording[];

/* 0, or EXIT_USAGE after a message. argv[0] is the verb; argv is reordered: arguments come first.
 */
int options_parse(struct options *options, const struct verb *verb, int argc, char **argv);
void options_print_help(const struct verb *verb);
/* Of several verbs whose names begin with the same word. */
void options_print_group(const struct verb *const *verbs, size_t n);

/* Mode, times and profile as options of a lock. */
struct stile_lock_options options_for_lock(const struct options *options);

/* The exit code, or the one given with -E instead of 69, 75 and 76. */
int options_exit_code(const struct options *options, int code);

/* ---- helper.c ---- */

/* Becomes the program of the verb; argv[0] is its name. Returns an exit code if that is not
 * possible. */
int helper_run(const struct verb *verb, char **argv);

/* ---- engine.c ---- */

/* -e, else stile_engine_default(); inside another run, with what is secret in its URL. Ends the
 * command if a file that sets the default is wrong. */
const char *engine_url(const struct options *options);
/* "-e", "$STILE_ENGINE", "PATH:LINE", or "": set nowhere, so it is local:. */
const char *engine_origin(const struct options *options);
bool engine_is_unnamed(const struct options *options); /* the last of these */
/* As say_failure(), for an engine that cannot be used: its URL, and the file that sets it. */
int engine_say_failure(const struct options *options, enum stile_status status,
                       const struct stile_error *err);
/* Removes a URL with secrets from the command line, where ps shows it to all users. */
void engine_hide_secrets(struct options *options);
/* caps, doctor: a URL that is given without -e. */
void engine_from_argument(struct options *options);
/* 0, or an exit code after a message. For `stile show`: label is the command, pid the process to
 * signal (0: this one). */
int engine_open(struct stile_client **client, const struct options *options, pid_t pid,
                const char *label);
/* *client is NULL if the engine cannot be reached, after a message; *caps is then what it promises
 * in general. */
int engine_open_for_caps(struct stile_client **client, const struct stile_caps **caps,
                         const struct options *options, const char *label);
/* Also opens an engine that would be refused for locks. */
int engine_open_to_examine(struct stile_client **client, const struct options *options,
                           const char *label);
/* For the verbs whose claims outlive their process: refuses engines without such claims. */
int engine_open_detached(struct stile_client **client, const struct options *options,
                         const char *verb);

/* option: --json or NULL. Returns the exit code. */
int engines_print(const char *option);

/* ---- watch.c ---- */

#define STAMP_MAX 40

/* UTC with milliseconds, so that lines of several machines can be merged. */
void stamp_write(char stamp[STAMP_MAX]);
/* Non-zero stops the watch: its reader is gone. */
int stamp_end_line(void);

/* ---- duration.c ---- */

/* `250ms`, `10s`, `5m`, `2h`, `1d`. NULL, or what is wrong with it. */
const char *duration_parse(int64_t *ms, const char *text);

/* `250ms`, `12s`, `3m04s`, `2h10m`, `5d03h`. */
#define DURATION_TEXT_MAX 32
const char *duration_format(char out[DURATION_TEXT_MAX], int64_t ms);

/* ---- text.c ---- */

/* Length of the UTF-8 character at s, or 0: not one (text ends there or a byte is out of place). */
size_t text_decode(uint32_t *code, const char *s);
/* A character that moves the cursor, is invisible or changes the writing direction. */
bool text_is_unsafe(uint32_t code);
/* Terminal columns of a text that text_escape() made. */
size_t text_columns(const char *s);

/* ---- output.c ---- */

/* A copy in which nothing moves the cursor, colours the terminal or turns the writing direction. */
char *text_escape(const char *s);

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

const char *info_mode(enum stile_mode mode);
/* `pid@host command`, or how long the name is kept without a holder. Yours to free. */
char *info_holder(const struct stile_claim_info *claim);
/* "" if its age is not known. */
const char *info_age(char out[DURATION_TEXT_MAX], const struct stile_claim_info *claim);
/* name, token, holders and waiters of one name; key as for json_open(). */
void info_json(struct json *json, const char *key, const struct stile_info *info);
/* The same without the brackets around it. */
void info_json_members(struct json *json, const struct stile_info *info);
/* The member "last"; null without one. */
void info_json_last(struct json *json, const struct stile_last_holder *last);
/* One line: which process, from when to when, with what result. */
void info_print_last(const struct stile_last_holder *last);

/* ---- wrap.c ---- */

/* Prints text from this column on, in lines of up to 80 columns; the further ones are indented. */
void print_wrapped(const char *text, size_t column, size_t indent);

/* ---- say.c ---- */

/* One line on stderr, "stile: " before it, in one write. */
void say(const char *format, ...) PRINTF_LIKE(1, 2);
/* From now on a message that stderr has no room for is dropped: a holder has leases to renew and a
 * tree to stop, and must not wait for a reader. */
void say_never_waits(void);
/* Prints what failed and returns the exit code for it. */
int say_failure(const char *what, enum stile_status status, const struct stile_error *err);
int exit_code_of(enum stile_status status);
/* Flushes stdout, and reports it if that fails. */
int finish_output(int code);
/* Exits if there is no memory: nothing useful could be done without it. */
void *must_alloc(void *memory);

#endif
