/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What the checker knows of claims, names and clients so far: for check.c alone.
 *
 * check_claims.c has claims and how long they hold; check_waits.c has the rules about waiting and
 * answers; check.c takes the events one by one.
 */
#ifndef STILE_SIM_CHECK_CLAIMS_H
#define STILE_SIM_CHECK_CLAIMS_H

#include "sim/check.h"

#define ROUNDED_NS UINT64_C(1000000)  /* deadlines are known to a millisecond */
#define TOLD_NS    UINT64_C(10000000) /* so the holder may be told a little later */
#define KEPT_SHARE 50 /* hold_at_least may last longer by this part, as clocks drift */
#define LOSS_NS    UINT64_C(1000000000) /* until a loss is known to a client that runs */
#define STILL_NS   UINT64_C(1000000000) /* how long nobody has used a name that is free */
#define NEWS_NS    UINT64_C(1000000000) /* how late the answer that grants may come */
#define HAND_NS    UINT64_C(1500000000) /* from a grant on the server until it is confirmed */
#define MENDED_NS  UINT64_C(3000000000) /* until all connections are there again */
#define HELD_ON_NS                                                                                 \
    UINT64_C(2000000000) /* leases of etcd are whole seconds, and end a little late */
#define DEAD_NS     UINT64_C(2000000000) /* what a dead waiter may cost those behind it */
#define REPEATED_NS UINT64_C(2000000000) /* a release is repeated for at least as long */
#define BROKEN_MAX  8
#define NOWHERE     SIZE_MAX /* no event */
#define SECONDS(ns) ((double)(ns) / 1e9)

/* BROKEN: over, although its holder may not know yet. */
enum claim_state { UNMADE, WAITING, HELD, BROKEN, OVER };

/* Lists of claims, linked by their numbers. */
struct place {
    uint32_t before, after;
    struct list *list; /* NULL: in none */
};

struct list {
    uint32_t first, last; /* NO_NUMBER: it is empty */
    uint32_t n;
};

struct claim_seen {
    enum claim_state state;
    uint32_t client, name;
    enum stile_mode mode;
    uint32_t slots;
    size_t asked, queued, granted; /* events */
    uint64_t deadline_ns;
    uint64_t until_ns;     /* when an answer to its wait is due; 0: not recorded */
    uint64_t first_until;  /* the deadline of its grant, before any renewal */
    uint64_t token_before; /* the largest that was known when it was asked for */
    size_t released;       /* the event */
    bool told;             /* that it is lost */
    bool broken;           /* by an operator */
    bool held_on;         /* and renewed since: the break has not reached it, and may never do so */
    bool cancelled;       /* by its caller */
    bool answered;        /* its release was */
    bool unnamed;         /* all breaks had been answered when it was asked for */
    bool alone;           /* nobody else had used its name when it asked */
    bool excused;         /* owed neither promptness nor order */
    bool slow;            /* something was wrong when its grant was on the way */
    struct place of_name; /* among the holders, or in the queue */
    struct place of_client; /* among the claims of its client that are not over */
};

struct name_seen {
    struct list holders;
    struct list queue;    /* exclusive claims whose place was confirmed, and are owed it */
    uint64_t free_ns;     /* since when no claim has held it, if none does */
    uint64_t given_ns;    /* when a release of it was last answered */
    uint64_t hold_end_ns; /* when hold_at_least of it is over; an engine may round that up */
    uint64_t top_token;
    size_t top_event;
    uint64_t top_written; /* as a resource: the highest token that was accepted */
    size_t written;       /* the event that wrote the present value */
    uint64_t value;
    uint64_t maybe;     /* a write without an answer may have written this; 0: none */
    uint32_t alive;     /* claims of it that wait or are held */
    uint64_t still_ns;  /* since when there is none, if there is none */
    size_t asked;       /* the last claim of it */
    uint32_t n_dead;    /* waiters whose place may still be there: their client has died */
    size_t dead_asked;  /* the last of them */
    bool delayed;       /* a claim with a lock-delay did not end well; none was granted since */
    bool left_foreign;  /* its last holder was another program */
    uint64_t kept_ns;   /* until when hold_at_least or lock-delay keeps it */
    uint32_t kept_by;   /* the claim */
    size_t breaks;      /* the last BREAKS event */
    uint32_t n_breaks;  /* without an answer so far */
    uint64_t broken_ns; /* until when holders may not know of a break; 0: there was none */
    bool settling;      /* they must, from then on */
    uint32_t broken[BROKEN_MAX], n_broken; /* holders when the break began */
    uint64_t passed_ns; /* when another claim was granted beside them; 0: none was */
};

struct client_seen {
    struct list claims; /* that are not over */
    bool over;
    uint64_t excused_ns; /* when it was last paused; 0: never */
};

struct token_seen {
    uint32_t name;
    uint64_t token;
    size_t event; /* NOWHERE: this place is empty */
};

struct check {
    const struct history *history;
    const struct promises *promises;
    struct verdict *verdict;
    struct claim_seen *claims;
    struct name_seen *names;
    struct client_seen *clients;
    struct token_seen *tokens; /* a hash table, at most half full */
    size_t token_mask;
    unsigned faults;    /* that last */
    uint64_t fault_ns;  /* until when those that are over may have an effect */
    size_t fault;       /* the last one */
    uint64_t healed_ns; /* when the last one of them was over */
    unsigned settling;  /* names that are */
    unsigned passed;    /* names that were */
    size_t at;          /* the present event */
};

enum membership { OF_NAME, OF_CLIENT };

/* Ends the check. first may be NOWHERE; the present event is shown last. */
void check_violate(struct check *check, enum rule rule, size_t first, size_t second,
                   const char *format, ...) __attribute__((format(printf, 5, 6)));
const char *check_name_of(const struct check *check, uint32_t name);
void check_list_append(struct check *check, struct list *list, uint32_t claim,
                       enum membership which);
void check_list_remove(struct check *check, uint32_t claim, enum membership which);
uint64_t check_now(const struct check *check);
void check_claim_over(struct check *check, uint32_t number);
void check_end_hold(struct check *check, uint32_t number, uint64_t until_ns);
uint64_t check_lease_end(const struct check *check, const struct claim_seen *claim);
bool check_was_broken(const struct check *check, const struct claim_seen *claim);
void check_keep_name(struct check *check, uint32_t number, bool clean);
uint32_t check_expire(struct check *check, struct name_seen *name, uint64_t ns);
bool check_may_hold_with(const struct claim_seen *one, const struct claim_seen *other,
                         uint32_t others);
void check_overlap(struct check *check, const struct claim_seen *claim, uint32_t others);
bool check_is_held_on(const struct check *check, const struct claim_seen *claim);
bool check_is_calm_since(const struct check *check, size_t event);
void check_end_wait(struct check *check, uint32_t number, uint64_t ns);
void check_promptness(struct check *check, const struct claim_seen *claim, uint64_t ns);
void check_order(struct check *check, const struct claim_seen *claim);
void check_answer_time(struct check *check, const struct claim_seen *claim, uint64_t ns);
void check_release_time(struct check *check, const struct claim_seen *claim, uint64_t ns);
void check_given_up(struct check *check, const struct claim_seen *claim, const struct event *event);
void check_given_back(struct check *check, const struct claim_seen *claim,
                      const struct event *event);
void check_busy(struct check *check, const struct claim_seen *claim, const struct event *event);

#endif
