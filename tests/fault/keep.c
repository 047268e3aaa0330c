/* One client that holds locks while it asks for others: keep URL. For each name on its input it
 * tries once, or waits for as many milliseconds as follow behind a tab; keeps what it gets until
 * its input ends, and says the status. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stile.h"

static enum stile_status ask(struct stile_client *client, char *name)
{
    struct stile_lock *lock;
    char *tab = strchr(name, '\t');
    if (tab)
        *tab++ = '\0';
    enum stile_status status = stile_lock_new(&lock, client, name, NULL, NULL);
    return status ? status : stile_lock_acquire(lock, tab ? atol(tab) : 0, NULL);
}

int main(int argc, char **argv)
{
    struct stile_client *client;
    struct stile_error err;
    char name[STILE_NAME_MAX + 32];
    if (argc != 2)
        return 2;
    if (stile_client_open(&client, argv[1], NULL, &err)) {
        (void)fprintf(stderr, "keep: %s\n", err.message);
        return 1;
    }
    while (fgets(name, sizeof name, stdin)) {
        name[strcspn(name, "\n")] = '\0';
        puts(stile_status_name(ask(client, name)));
        (void)fflush(stdout);
    }
    stile_client_close(client);
    return 0;
}
