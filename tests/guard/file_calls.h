/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The system calls that guarded files are made of, one of which goes wrong. For tests that are
 * linked with --wrap (file_calls_dep), so that they come here first. */
#ifndef STILE_TEST_FILE_CALLS_H
#define STILE_TEST_FILE_CALLS_H

#include <setjmp.h>
#include <stdbool.h>

enum calls_end {
    CALLS_FAIL,      /* with calls.error */
    CALLS_FAIL_ON,   /* and so do all that follow */
    CALLS_KILL,      /* SIGKILL instead of the call */
    CALLS_KILL_LATE, /* SIGKILL right after it */
    CALLS_KILL_HALF, /* of a write only the first half is done; else as CALLS_KILL */
    CALLS_LEAVE,     /* longjmp to calls.away, as if killed, but with the test's memory */
};

extern struct calls {
    bool armed;
    enum calls_end end;
    int error;
    unsigned at;   /* which call it is, counted from 0 */
    unsigned seen; /* since calls_begin() */
    jmp_buf away;
    /* After each call that may have changed the disk or what is durable on it; may be NULL. */
    void (*created)(int fd);
    void (*written)(int fd);
    void (*synced)(int fd);
    void (*not_synced)(int fd); /* the sync has failed */
    void (*changed)(void);
} calls;

void calls_begin(enum calls_end end, unsigned at, int error);
void calls_finish(void);

#endif
