/* Seats: which nodes a group consists of.
 *
 * A node's address can't tell: clients may name it in different ways. So each node has a label of
 * its own, and each epoch the list of its members' labels. A node that lost its data has lost its
 * label with it. When it is adopted it gets a new one, which takes the place of one whose node does
 * not answer; should that node come back, it can't follow, and so a group of N never has N + 1
 * members that vote. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/redlock/group.h"

#define HINT_DIGITS 4 /* of a seat, at its end */

bool seats_have(const char *seats, const char *seat)
{
    return group_is_older(seat, seats);
}

void seats_add(char seats[SEATS_MAX + 1], const char *seat)
{
    size_t used = strlen(seats);
    snprintf(seats + used, SEATS_MAX + 1 - used, "%s%s", used ? " " : "", seat);
}

unsigned seats_count(const char *seats)
{
    unsigned n = *seats != '\0';
    for (; *seats; seats++)
        n += *seats == ' ';
    return n;
}

static void write_hint(char hint[HINT_DIGITS + 1], const struct node *node)
{
    unsigned hash = 2166136261u;
    for (const char *at = node->where; *at; at++)
        hash = (hash ^ (unsigned char)*at) * 16777619u;
    snprintf(hint, HINT_DIGITS + 1, "%04x", (hash ^ hash >> 16) & 0xffff);
}

int seats_draw(char seat[SEAT_LEN + 1], const struct node *node)
{
    int rc = group_draw(seat, SEAT_LEN - HINT_DIGITS, node->redlock->engine.loop);
    write_hint(seat + SEAT_LEN - HINT_DIGITS, node);
    return rc;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

bool seats_of_all(char seats[SEATS_MAX + 1], const struct survey *survey)
{
    const char *sorted[NODES_MAX];
    unsigned n = survey->redlock->n;
    for (unsigned i = 0; i < n; i++) {
        sorted[i] = survey->accounts[i].seat;
        if (!*sorted[i])
            return false;
    }
    qsort(sorted, n, sizeof *sorted, by_text);
    *seats = '\0';
    for (unsigned i = 0; i < n; i++)
        seats_add(seats, sorted[i]);
    return true;
}

/* ---- giving them to others ---- */

static bool is_taken(const struct survey *survey, unsigned members, const char *seat)
{
    for (unsigned i = 0; i < survey->redlock->n; i++) {
        if (members & 1u << i && strcmp(survey->accounts[i].seat, seat) == 0)
            return true;
    }
    return false;
}

/* The first that nobody has, and best one that was given to a node of this address. */
static char *find_vacancy(char *seats, const struct survey *survey, unsigned members,
                          const struct node *node)
{
    char hint[HINT_DIGITS + 1], *found = NULL;
    write_hint(hint, node);
    for (char *at = seats; strlen(at) >= SEAT_LEN; at += SEAT_LEN + (at[SEAT_LEN] == ' ')) {
        char seat[SEAT_LEN + 1];
        snprintf(seat, sizeof seat, "%.*s", SEAT_LEN, at);
        if (is_taken(survey, members, seat))
            continue;
        if (strcmp(seat + SEAT_LEN - HINT_DIGITS, hint) == 0)
            return at;
        found = found ? found : at;
    }
    return found;
}

unsigned seats_reassign(char seats[SEATS_MAX + 1], const struct survey *survey, unsigned members,
                        unsigned needy)
{
    unsigned seated = 0;
    for (unsigned i = 0; i < survey->redlock->n; i++) {
        const char *seat = survey->accounts[i].seat;
        if (!(needy & 1u << i) || strlen(seat) != SEAT_LEN)
            continue;
        char *at = find_vacancy(seats, survey, members | seated, &survey->redlock->nodes[i]);
        if (!at)
            continue;
        memcpy(at, seat, SEAT_LEN);
        seated |= 1u << i;
    }
    return seated;
}
