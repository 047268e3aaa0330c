/* The processes of `stile run`, and of every wait that a signal may end.
 *
 *     front ──fork──► warden ──vfork──► command ──► whatever it starts
 *
 * `stile jobs work` has as many wardens as jobs may run at a time; each claims for itself.
 *
 * The front is what the user started: it passes signals on and ends as the command did. The warden
 * holds the lock and owns the tree. Each one sees the other's death: the warden through the
 * lifeline, a pipe whose writing end only the front has; the front as the warden's parent. Both are
 * subreapers, so that no descendant of the command gets away by losing its parent, and "nobody is
 * left" is what waitpid() says. Where a lock ends with the process that holds it, the front has
 * copies of the descriptors it lives by: it lasts until both are gone.
 *
 * All share the caller's process group, so the terminal's Ctrl-C, Ctrl-Z and reads behave as if the
 * command had been started alone. What each of them does when is in cli/README.md.
 */
#ifndef STILE_CLI_PROCESS_H
#define STILE_CLI_PROCESS_H

#include <signal.h>
#include <sys/types.h>

#include "cli.h"

int64_t now_ms(void); /* CLOCK_BOOTTIME: counts suspend, as leases do */

/* ---- tree.c ---- */

/* Keeps descriptors back, so that the tree can be found and ended whatever else is open. False if
 * there are none. */
bool tree_reserve(void);

typedef void tree_visit_fn(pid_t pid, void *data);

/* Visits each living descendant of root once, parents first. proc: "/proc", or a test's. False if
 * it cannot be read. What forks meanwhile may be missed; walk again until nobody is left. */
bool tree_walk(const char *proc, pid_t root, tree_visit_fn *visit, void *data);

/* /proc may be missing, or that of another pid namespace, in which we have no number. */
bool tree_is_visible(void);

/* Sends sig to every descendant of this process, and SIGCONT behind it if that is needed for it to
 * be seen. child: known to be one, for where the tree is not visible. spare_group: not to those in
 * our process group, which have had it. Returns a pid that may not be signalled, or 0. */
pid_t tree_signal(pid_t child, int sig, bool spare_group);

/* The numbers of at most max descendants; returns how many there are. */
size_t tree_list(pid_t *pids, size_t max);

/* Whether it neither handles nor ignores nor blocks sig, as far as can be seen. */
bool tree_has_default_action(pid_t pid, int sig);

/* Ends every descendant and returns when none is left. SIGCHLD must be blocked. */
void tree_end(void);

/* ---- ending.c: of a whole tree ---- */

struct ending {
    const char *name, *what; /* for messages: of which lock or job */
    int stopping;            /* 0, SIGTERM or SIGKILL: how far we are */
    int64_t term_ms;         /* when SIGTERM follows a milder signal; 0: it doesn't */
    int64_t kill_ms;         /* when SIGTERM has had its time */
    int64_t pass_ms;         /* when to look again for who is left */
    int64_t pause_ms;        /* until then */
    int64_t killed_ms;       /* when the first SIGKILL went out */
    bool told_stuck;
};

/* So long before the end of a lease the tree is asked to end. */
int64_t ending_grace_ms(const struct options *options, int64_t lease_ms);
/* How long a tree has to end after a signal, where no lease presses. */
int64_t ending_patience_ms(const struct options *options);
/* command: known to be a child, 0 if it has ended, as for tree_signal(). */
void ending_begin(struct ending *ending, pid_t command, int64_t patience_ms);
/* The same with another signal than SIGTERM, for the tree of a command that it has ended. */
void ending_begin_with(struct ending *ending, int sig, bool spare_group, int64_t patience_ms);
void ending_kill(struct ending *ending);
void ending_hasten(struct ending *ending, int64_t patience_ms);
void ending_push(struct ending *ending, pid_t command); /* does what is due */
int64_t ending_next_ms(const struct ending *ending);    /* when something is; INT64_MAX */
/* False: there is nobody left below us. ended and status are set if the command is among those. */
bool ending_reap(pid_t command, bool *ended, int *status);

/* ---- signals.c ---- */

struct signals {
    sigset_t inherited;     /* the mask we were started with */
    sigset_t taken;         /* what we pass on or act upon, and SIGCHLD */
    bool child_was_ignored; /* SIGCHLD was: waitpid() would not work */
};

/* Blocks what we take from now on. What was ignored when we were started (nohup, background jobs of
 * a script) stays so and is not taken. */
void signals_take(struct signals *signals);
/* In a new child, before exec. */
void signals_restore(const struct signals *signals);
bool signals_ends_wait(int sig); /* one of those that would end a process which waits */
/* Whoever sends one of these wants the command to end; the tree below it gets it too. */
static inline bool signals_asks_to_end(int sig)
{
    return sig == SIGTERM || sig == SIGINT || sig == SIGHUP || sig == SIGQUIT;
}
/* Sends the command what has not reached it by itself. */
struct event;
void signals_pass(pid_t command, const struct event *event);
/* Ends this process as sig would have; returns an exit code should that be impossible. */
int signals_die_of(int sig);

/* ---- signals.c: what reaches the warden ---- */

/* Between a front and one of its wardens, as the warden has it. */
struct link {
    pid_t front;
    int lifeline; /* words of the front come from it; -1: there is no front */
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
    REPORT_QUESTION, /* whether the front has passed on all it was sent */
    REPORT_KEEP,     /* comes with descriptors that the locks live by */
    REPORT_DIED_OF,  /* the command, or the wait for the lock, was ended by sig */
};

struct report {
    enum report_kind kind;
    int sig;
};

#define KEPT_MAX 64 /* descriptors in one report */

struct msghdr;
void report(const struct link *link, const struct msghdr *message);
/* Wakes the front with SIGCHLD, which a warden's end sends as well: it waits for signals only. */
void report_nudge(const struct link *link);
/* Both. */
void report_word(const struct link *link, enum report_kind kind, int sig);

enum event_kind {
    EVENT_NONE,
    EVENT_SIGNAL,   /* for us to act upon */
    EVENT_GROUP,    /* the same, and all of our process group had it */
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

/* A signal that the warden was sent, or the front, and perhaps both. */
struct half {
    struct passed_signal word;
    bool by_front;
    bool acted_upon; /* kept so that the other half is known as such */
    int64_t sent_ms;
    uint64_t question; /* ours: the number of what we asked the front about it */
};

struct pairing {
    pid_t sender;
    int64_t ms;
};

struct inbox {
    struct link link;
    int signal_fd;
    bool orphaned, has_word;
    struct passed_signal word;
    uint64_t questions, answers;
    struct half halves[HALVES_MAX];
    size_t n_halves;
    struct pairing paired[SIGNALS_MAX]; /* the last two halves that met */
};

/* False with errno. */
bool inbox_open(struct inbox *inbox, const struct signals *signals, const struct link *link);
struct event inbox_next(struct inbox *inbox);    /* EVENT_NONE: nothing more for now */
int64_t inbox_due_ms(const struct inbox *inbox); /* when to ask again at the latest; INT64_MAX */

/* ---- grant.c ---- */

struct grant {
    struct stile_client *client;
    struct stile_lock **locks; /* in canonical order */
    size_t n;
    int64_t wait_ms;
    struct inbox *inbox;
    bool report; /* on a terminal: names the holder, after a second */

    size_t taken; /* of them; locks[taken] is the one that was not granted */
    bool pending; /* one acquire is under way */
    bool paused;  /* Ctrl-Z: granted or not, the command must not start before SIGCONT */
    int sig;      /* what ended the wait, or 0 */
    enum stile_status status;
    struct stile_error err;
};

/* All or none. CANCELLED: by grant->sig, or because the front is gone (sig 0). */
enum stile_status grant_wait(struct grant *grant);

/* Polls the client and the inbox until one has something or until_ms has come. */
void wait_ready(struct stile_client *client, const struct inbox *inbox, int64_t until_ms);

/* ---- front.c ---- */

/* The life of a child of the front; returns its exit code. */
typedef int post_fn(struct options *options, const struct signals *signals,
                    const struct link *link);

/* Starts n of them, passes signals on, and returns when all have ended: the first code that is not
 * 0, or EXIT_LOST. Dies of the signal that ended the command. In a child it returns that child's
 * code. what: that they have, for messages. */
int front_run(const char *verb, const char *what, size_t n, post_fn *fn, struct options *options);

/* ---- title.c ---- */

/* Called by main() before anything else. */
void title_begin(char **argv);
/* For a warden: another name, so that `pkill stile` and `pkill -f 'stile run'` meet the front
 * alone, which then ends the tree in order. Copies what options has of the command line. */
void title_set(const char *name, pid_t front, struct options *options);

/* ---- warden.c ---- */

post_fn warden_main;

/* ---- child.c ---- */

/* environ with STILE_NAME, STILE_TOKEN, ... of these locks instead of whatever was there; those two
 * are of the lock named first. */
char **child_environment(const struct options *options, struct stile_lock *const *locks, size_t n,
                         const char *first);
/* The same with STILE_QUEUE, STILE_JOB_ID, ... */
char **child_environment_of_job(const struct options *options, const struct stile_job *job);
void child_environment_free(char **environment);
/* The new process, or -1 with errno. input becomes its stdin, unless -1; it inherits life, unless
 * -1. If it can't be executed it says so and ends as a shell's. */
pid_t child_start(char *const *command, char *const *environment, const struct signals *signals,
                  int input, int life);
/* Of the last one, once it has ended: true if it ended so. */
bool child_was_not_executed(void);

/* ---- engine.c: a run inside a run ---- */

/* The value of STILE_ENGINE_FROM for a command, yours to free; NULL: the URL has no secrets. */
char *credentials_offer(const char *url);
/* The URL with what is secret in it, if an outer run has offered it. Yours to free. */
char *credentials_find(const char *url);
/* An outer run has offered them for this URL, and it is still without. */
bool credentials_are_missing(const char *url);

/* ---- jobs_run.c ---- */

/* Runs one claimed job to its end, and says to the engine what became of it. */
struct job_run {
    const struct options *options;
    const struct signals *signals;
    struct inbox *inbox;
    struct stile_client *client;
    struct stile_job *job;
    int64_t lease_ms;
    bool quit;    /* a signal has asked us to end */
    bool orphan;  /* the front is gone */
    bool no_exec; /* the command can't be executed: the job is given back */
    int code;     /* of the command, or EXIT_LOST */
};

void job_run(struct job_run *run);

#endif
