/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* proclaim URL NAME: leads with the value "1", says "leads", and proclaims each further line of its
 * input, whose status it prints. */
#include <stdio.h>
#include <string.h>

#include "stile.h"

int main(int argc, char **argv)
{
    struct stile_client *client;
    struct stile_election *election;
    char line[STILE_PROCLAIM_MAX + 2];
    if (argc != 3 || stile_client_open(&client, argv[1], NULL, NULL) != STILE_OK ||
        stile_election_new(&election, client, argv[2], NULL, NULL) != STILE_OK ||
        stile_election_campaign(election, "1", -1, NULL) != STILE_OK)
        return 1;
    puts("leads");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        puts(stile_status_name(stile_election_proclaim(election, line, NULL)));
        fflush(stdout);
    }
    stile_client_close(client);
    return 0;
}
