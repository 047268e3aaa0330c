/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A server that does what the test says, and a connection to it. */
#ifndef STILE_REDIS_CONN_KIT_H
#define STILE_REDIS_CONN_KIT_H

#include "engines/redis/connection.h"
#include "support/conn_kit.h"

#define SETNAME "*3\r\n$6\r\nCLIENT\r\n$7\r\nSETNAME\r\n$5\r\nstile\r\n"
#define GET_A   "*2\r\n$3\r\nGET\r\n$1\r\na\r\n"
#define GET_B   "*2\r\n$3\r\nGET\r\n$1\r\nb\r\n"
#define PING    "*1\r\n$4\r\nPING\r\n"

extern struct fake server;

int scene_open(void **state);
int scene_close(void **state);

void scene_flush(void);
void scene_welcome(void); /* the next connection comes, and is welcome */
void scene_connect(void);
void scene_fail_attempts(unsigned n); /* time flies for the next attempt, too */

bool error_has(const struct stile_error *err, const char *words);

#endif
