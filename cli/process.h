/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The processes of `stile run`, and of every wait that a signal may end.
 *
 *     front ──fork──► warden ──vfork──► command ──► whatever it starts
 *
 * `stile jobs work` has as many wardens as jobs may run at a time; each claims for itself.
 *
 * The front is what the user started: it passes signals on and ends as the command did. The warden
 * holds the lock and owns the tree. Each one sees the other's death: the warden through the
 * lifeline, a pipe whose writing end only the front has; the front as the warden's parent. Both are
 * subreapers, so that no descendant of the command escapes when its parent ends: the tree is gone
 * when waitpid() reports no child. Where a lock ends with the process that holds it, the front has
 * copies of the descriptors that keep it, so the lock lasts until both are gone.
 *
 * All share the caller's process group, so the terminal's Ctrl-C, Ctrl-Z and reads behave as if the
 * command had been started alone. cli/README.md has a table of what each of them does.
 */
#ifndef STILE_CLI_PROCESS_H
#define STILE_CLI_PROCESS_H

#include <signal.h>
#include <sys/types.h>

#include "cli.h"

int64_t now_ms(void); /* CLOCK_BOOTTIME: counts suspend, as leases do */

/* ---- tree.c ---- */

/* Reserves descriptors, so that the tree can be found and ended whatever else is open. False if
 * there are none left. */
bool tree_reserve(void);

typedef void tree_visit_fn(pid_t pid, void *data);

/* Visits each living descendant of root once, parents first. proc: "/proc", or a test's. False if
 * it cannot be read. Processes forked meanwhile may be missed; walk again until none is left. */
bool tree_walk(const char *proc, pid_t root, tree_visit_fn *visit, void *data);

/* False: /proc is missing, or belongs to a pid namespace in which this process has no number. */
bool tree_is_visible(void);

/* Sends sig to every descendant of this process, and then SIGCONT if a stopped process could not
 * handle it otherwise. child: a known child, in case the tree is not visible. spare_group: not to
 * those in our process group, which have had it. Returns a pid that may not be signalled, or 0. */
pid_t tree_signal(pid_t child, int sig, bool spare_group);

/* The pids of at most max descendants; returns how many there are. */
size_t tree_list(pid_t *pids, size_t max);

/* Whether it neither handles nor ignores nor blocks sig, as far as /proc shows. */
bool tree_has_default_action(pid_t pid, int sig);

/* Ends every descendant and returns when none is left. SIGCHLD must be blocked. */
void tree_end(void);

/* ---- ending.c: the end of a whole tree ---- */

struct ending {
    const char *name, *what; /* for messages: of which lock or job */
    int stopping;            /* 0, SIGTERM or SIGKILL: the signal sent last */
    int64_t term_ms;         /* when SIGTERM follows a milder signal; 0: it doesn't */
    int64_t kill_ms;         /* when SIGKILL follows SIGTERM */
    int64_t pass_ms;         /* when to signal the processes that are left */
    int64_t pause_ms;        /* until the next pass */
    int64_t killed_ms;       /* when the first SIGKILL was sent */
    bool reported_stuck;
};

/* How long before the end of a lease the tree is asked to end. */
int64_t ending_grace_ms(const struct options *options, int64_t lease_ms);
/* How long a tree has to end after a signal, if its lease is not about to end. */
int64_t ending_patience_ms(const struct options *options);
/* command: a known child, as for tree_signal(); 0 if it has ended. */
void ending_begin(struct ending *ending, pid_t command, int64_t patience_ms);
/* The same with a signal other than SIGTERM, for the tree of a command that this signal ended. */
void ending_begin_with(struct ending *ending, int sig, bool spare_group, int64_t patience_ms);
void ending_kill(struct ending *ending);
void ending_hasten(struct ending *ending, int64_t patience_ms);
void ending_push(struct ending *ending, pid_t command); /* does what is due */
int64_t ending_next_ms(const struct ending *ending);    /* when something is; INT64_MAX */
/* False: no child is left. ended and status are set if the command is among those reaped. */
bool ending_reap(pid_t command, bool *ended, int *status);

/* ---- signals.c ---- */

struct signals {
    sigset_t inherited;     /* the mask we were started with */
    sigset_t taken;         /* what we pass on or act upon, and SIGCHLD */
    bool child_was_ignored; /* SIGCHLD was: waitpid() would not work */
};

/* Blocks the signals to be taken. Those that were ignored at the start (nohup, background jobs of a
 * script) stay ignored and are not taken. */
void signals_take(struct signals *signals);
/* In a new child, before exec. */
void signals_restore(const struct signals *signals);
bool signals_ends_wait(int sig); /* one of those that end a wait for the lock */
/* One of those that ask the command to end; its tree gets them too. */
static inline bool signals_asks_to_end(int sig)
{
    return sig == SIGTERM || sig == SIGINT || sig == SIGHUP || sig == SIGQUIT;
}
/* Sends the command a signal that it has not received directly. */
struct event;
void signals_pass(pid_t command, const struct event *event);
/* Ends this process as sig would have; returns an exit code if that is impossible. */
int signals_die_of(int sig);

/* ---- signals.c: what reaches the warden ---- */

/* Between a front and one of its wardens: the warden's side. */
struct link {
    pid_t front;
    int lifeline; /* signals that the front passes on; -1: there is no front */
    int reports;  /* to the front; -1 without one */
};

#define BY_KERNEL (-1) /* as sender: the terminal, a timer */

/* What the front writes into the lifeline when it was sent a signal. */
struct passed_signal {
    int sig; /* 0: the answer to a question */
    pid_t sender;
    bool queued; /* by sigqueue(3), with a value */
    void *value;
};

struct passed_signal passed_signal_of(int sig, int code, pid_t sender, void *value);

enum report_kind {
    REPORT_QUESTION, /* whether the front has passed on every signal so far */
    REPORT_KEEP,     /* comes with the descriptors that keep the locks */
    REPORT_DROP,     /* the tree is gone, so the descriptors sent so far keep nothing */
    REPORT_DIED_OF,  /* the command, or the wait for the lock, was ended by sig */
};

struct report {
    enum report_kind kind;
    int sig;
};

#define KEPT_MAX 64 /* descriptors in one report */

struct msghdr;
void report(const struct link *link, const struct msghdr *message);
/* Wakes the front with SIGCHLD: it waits for signals only. */
void report_wake_front(const struct link *link);
/* Both. */
void report_send(const struct link *link, enum report_kind kind, int sig);

enum event_kind {
    EVENT_NONE,
    EVENT_SIGNAL,   /* to this process alone */
    EVENT_GROUP,    /* to the whole process group */
    EVENT_CHILD,    /* one of our children ended */
    EVENT_ORPHANED, /* the front is gone */
};

struct event {
    enum event_kind kind;
    int sig;
    bool by_kernel, queued;
    void *value; /* as queued */
};

#define SIGNALS_MAX 65
#define HALVES_MAX  64

/* A signal that reached the warden or the front. If it was sent to the process group, the other
 * half arrives as well. */
struct half {
    struct passed_signal passed;
    bool by_front;
    bool acted_upon; /* kept only to recognise the other half */
    int64_t sent_ms;
    uint64_t question; /* the warden's half: the number of its question to the front */
};

struct pairing {
    pid_t sender;
    int64_t ms;
};

struct inbox {
    struct link link;
    int signal_fd;
    bool orphaned, has_passed;
    struct passed_signal passed;
    uint64_t questions, answers;
    struct half halves[HALVES_MAX];
    size_t n_halves;
    struct pairing paired[SIGNALS_MAX]; /* the last two halves that met */
};

/* False with errno. */
bool inbox_open(struct inbox *inbox, const struct signals *signals, const struct link *link);
struct event inbox_next(struct inbox *inbox);    /* EVENT_NONE: nothing more for now */
int64_t inbox_due_ms(const struct inbox *inbox); /* when to call it again at the latest */

/* ---- holder.c: which process has a lock, for messages ---- */

#define LOOK_HOST_MAX    128
#define LOOK_COMMAND_MAX 128
#define LOOK_PROCESS_MAX (LOOK_HOST_MAX + 32)
#define LOOK_TEXT_MAX    512
#define CLOCK_TEXT_MAX   32

/* What one look at a name has seen. It must outlive the client: an engine may not answer in time,
 * and closing the client ends the look. */
struct look {
    const char *name; /* borrowed */
    pid_t self;       /* as `stile show` prints this process */
    bool under_way, answered;
    size_t holders; /* the rest is about the first of them */
    bool ghost;     /* kept without a holder */
    int64_t ahead;  /* waiters before this process; -1: not known */
    int64_t age_ms, expires_ms, pid;
    char host[LOOK_HOST_MAX], command[LOOK_COMMAND_MAX];
};

/* One at a time. */
void look_begin(struct look *look, struct stile_client *client, const char *name, pid_t self);
void look_wait(const struct look *look, struct stile_client *client, int64_t until_ms);
void look_say_waiting(const struct look *look, const char *name);
void look_say_refused(const struct look *look, const struct options *options, const char *name,
                      enum stile_status status);
/* `stile VERB [-e URL] [NAME]`, quoted for a shell, without secrets. Yours to free. */
char *hint_command(const struct options *options, const char *verb, const char *name);

/* ---- grant.c ---- */

/* Where messages about a wait go. */
enum audience {
    AUDIENCE_NONE,
    AUDIENCE_TERMINAL, /* one line, after a second */
    AUDIENCE_LOG,      /* a line after 10 seconds, and then every minute */
};

/* When the n-th line about a wait is due, counted from the one before; -1: never. */
int64_t grant_report_after_ms(enum audience audience, unsigned n);

struct grant {
    struct stile_client *client;
    struct stile_lock **locks; /* in canonical order */
    size_t n;
    struct stile_election *election; /* whose lock is the only one; NULL: there is none */
    const char *proclaim;            /* of the election; NULL: nothing */
    int64_t wait_ms;
    struct inbox *inbox;
    enum audience audience;
    struct look *look; /* outlives the client */
    pid_t self;        /* as `stile show` prints this process */

    unsigned reports;  /* printed so far */
    int64_t report_ms; /* when the next one is due */
    int64_t tell_ms;   /* by when it is printed, even if the engine has not answered; 0: none is */
    size_t taken;      /* of them; locks[taken] is the one that was not granted */
    bool pending;      /* one acquire is under way */
    bool paused;       /* Ctrl-Z: granted or not, the command must not start before SIGCONT */
    int sig;           /* what ended the wait, or 0 */
    enum stile_status status;
    struct stile_error err;
};

/* All or none. CANCELLED: by grant->sig, or because the front is gone (sig 0). */
enum stile_status grant_wait(struct grant *grant);
/* After HELD or TIMEOUT: one line that names the holder, and the command that shows it. */
void grant_say_refused(const struct grant *grant, const struct options *options,
                       enum stile_status status);

/* Polls the client and the inbox until one has something or until_ms has come. */
void wait_ready(struct stile_client *client, const struct inbox *inbox, int64_t until_ms);
/* The same, or until the descriptor is readable. */
void wait_ready_or(struct stile_client *client, const struct inbox *inbox, int64_t until_ms,
                   int fd);

/* ---- front.c ---- */

/* The life of a child of the front; returns its exit code. */
typedef int warden_fn(struct options *options, const struct signals *signals,
                      const struct link *link);

/* Starts n wardens, passes signals on, and returns when all have ended: the first code that is not
 * 0, or EXIT_LOST. Dies of the signal that ended the command. In a child it returns that child's
 * code. what: "the lock" or "a job", for messages. */
int front_run(const char *verb, const char *what, size_t n, warden_fn *fn, struct options *options);

/* ---- title.c ---- */

/* Called by main() before anything else. */
void title_begin(char **argv);
/* Renames a warden, so that `pkill stile` and `pkill -f 'stile run'` reach the front alone, which
 * then ends the tree in order. Copies the parts of the command line that options refers to. */
void title_set(const char *name, pid_t front, struct options *options);

/* ---- warden.c ---- */

/* How the command of a verb ended, with the lock still held. */
struct warden_end {
    struct stile_lock *lock;
    int code;           /* as a shell would report it: 128 + N for a signal */
    bool asked;         /* it ended because this process was asked to end */
    const char *output; /* its stdout; NULL: more than was to be kept */
    size_t output_size; /* of all of it */
};

#define WARDEN_GO_ON (-1)

/* A verb that runs a command as `stile run` does, with steps of its own. Each step may be NULL. It
 * may block as long as calls on the client do: they renew the lock meanwhile. */
struct warden_job {
    const char *verb;   /* for messages */
    bool may_leave;     /* the verb has --leave */
    bool needs_token;   /* refuses an engine without tokens before it waits */
    size_t keep_output; /* not 0: stdout is passed on by the warden, which keeps this many bytes of
                           it */
    /* The engine is open, and nothing is held. WARDEN_GO_ON, or an exit code. */
    int (*opened)(struct warden_job *job, struct stile_client *client);
    /* The wait was too long. WARDEN_GO_ON: that is reported, and is EXIT_NOT_ACQUIRED. */
    int (*refused)(struct warden_job *job, struct stile_client *client);
    /* The lock is held. WARDEN_GO_ON: the command starts. Else an exit code: the lock is given
     * back. */
    int (*granted)(struct warden_job *job, struct stile_lock *lock);
    /* The whole tree is gone, and the lock not lost. Returns the exit code. */
    int (*ended)(struct warden_job *job, const struct warden_end *end);
    /* An election: the warden campaigns, and SIGTERM stops the whole tree. */
    bool elects;
    /* Elections: the tree is gone, and the leadership over; lost, or the command has ended with
     * this code. Returns after how many ms the warden campaigns again; -1: it exits. */
    int64_t (*again)(struct warden_job *job, bool lost, int code);
};

/* A warden that takes the locks named by the arguments of options. */
int warden_run(struct warden_job *job, struct options *options, const struct signals *signals,
               const struct link *link);

/* ---- run.c ---- */

/* 0, or EXIT_USAGE after a message: a name is held by the run around this one. */
int run_check_nesting(const char *verb, const struct options *options);

/* ---- child.c ---- */

/* environ with STILE_NAME, STILE_TOKEN, ... of these locks instead of whatever was there; those two
 * are of the lock named first. */
char **child_environment(const struct options *options, struct stile_lock *const *locks, size_t n,
                         const char *first);
/* The same with STILE_QUEUE, STILE_JOB_ID, ... */
char **child_environment_of_job(const struct options *options, const struct stile_job *job);
void child_environment_free(char **environment);
/* The new process, or -1 with errno. standard becomes its stdin, stdout and stderr, each unless -1;
 * it inherits life, unless -1. If it can't be executed, the child prints why and exits as in a
 * shell. */
pid_t child_start(char *const *command, char *const *environment, const struct signals *signals,
                  const int standard[3], int life);
/* Whether the last child ended because its command could not be executed. */
bool child_was_not_executed(void);

/* ---- engine.c: a run inside a run ---- */

/* The value of STILE_ENGINE_FROM for a command, yours to free; NULL: the URL has no secrets. */
char *credentials_offer(const char *url);
/* The URL with its secrets, if an outer run has offered them. Yours to free. */
char *credentials_find(const char *url);
/* An outer run has offered secrets for this URL, but they could not be read. */
bool credentials_are_missing(const char *url);

/* ---- relay.c: the stdout or stderr of a command ---- */

#define RELAY_KEPT 2048 /* bytes, of a job's stderr */

/* *to is for the command; close it when the command is started. What comes is passed on to our
 * descriptor, and the last bytes are kept. NULL: it cannot be done. */
struct relay *relay_start(int *to, int ours, size_t kept);
/* Nothing more is expected, whether or not some process still has its end. What has come is passed
 * on; a SIGCHLD to this process reports that this is done. */
void relay_stop(struct relay *relay);
bool relay_is_over(const struct relay *relay);
/* Once it is over: all *n bytes that came; NULL if there were more than are kept. */
const char *relay_whole(const struct relay *relay, size_t *n);
/* Once it is over: why ours did not take all of it, as errno; 0: it did. */
int relay_error(const struct relay *relay);
/* Once it is over, of RELAY_KEPT bytes: the last lines, without colours. */
void relay_text(const struct relay *relay, char out[RELAY_KEPT + 1]);
/* If it is not over, its thread continues, and frees it. */
void relay_free(struct relay *relay);

/* ---- jobs_run.c ---- */

/* Runs one claimed job to its end, and reports the result to the engine. */
struct job_run {
    const struct options *options;
    const struct signals *signals;
    struct inbox *inbox;
    struct stile_client *client;
    struct stile_job *job;
    int64_t lease_ms;
    bool quit;    /* a signal has asked this process to end */
    bool orphan;  /* the front is gone */
    bool no_exec; /* the command can't be executed: the job is given back */
    int code;     /* of the command, or EXIT_LOST */
};

void job_run(struct job_run *run);

#endif
