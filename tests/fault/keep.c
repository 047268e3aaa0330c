/* One client that holds locks while it asks for others: keep URL. For each name on its input it
 * tries once, keeps what it gets until its input ends, and says the status. */
#include <stdio.h>
#include <string.h>

#include "stile.h"

static enum stile_status try_it(struct stile_client *client, const char *name)
{
    struct stile_lock *lock;
    enum stile_status status = stile_lock_new(&lock, client, name, NULL, NULL);
    return status ? status : stile_lock_acquire(lock, 0, NULL);
}

int main(int argc, char **argv)
{
    struct stile_client *client;
    struct stile_error err;
    char name[STILE_NAME_MAX + 2];
    if (argc != 2)
        return 2;
    if (stile_client_open(&client, argv[1], NULL, &err)) {
        (void)fprintf(stderr, "keep: %s\n", err.message);
        return 1;
    }
    while (fgets(name, sizeof name, stdin)) {
        name[strcspn(name, "\n")] = '\0';
        puts(stile_status_name(try_it(client, name)));
        (void)fflush(stdout);
    }
    stile_client_close(client);
    return 0;
}
