/* What a fork does to open clients: the child's copies are dead. Every call compares the epoch it
 * was made in with the current one, without a syscall, and the child closes the inherited file
 * descriptors at once, so that a lock never outlives its process in an unsuspecting child. */
#ifndef STILE_FORK_H
#define STILE_FORK_H

#include <stdbool.h>
#include <stdint.h>

struct stile_client;

/* Differs between a process and each of its forked children; 0: could not be set up. */
uint64_t fork_epoch(void);

/* Clients known to the fork handler, and to stile_client_close() as really open. */
int fork_register(struct stile_client *client); /* 0 or errno */
void fork_unregister(struct stile_client *client);
bool fork_begin_close(struct stile_client *client); /* false: not open, or being closed already */
void fork_refuse_close(struct stile_client *client);

/* A fork waits while an engine is being opened or closed: what it has then is in nobody's register,
 * and a child would keep it. Never around a callback, which may fork. */
void fork_hold_off(void);
void fork_let_go(void);

#endif
