/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The elements of a set, each with the adds that keep it there.
 *
 * An add that one side has and the other lacks is either new to the other side, or was removed
 * there. The other side's version vector decides: what it covers was seen, so it was removed. That
 * is why removals leave nothing behind. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "recipes/crdt_state.h"

struct crdt_element *crdt_element_new(const struct crdt_dot *dots, size_t n_dots, const void *bytes,
                                      size_t size)
{
    struct crdt_element *element = malloc(sizeof *element + n_dots * sizeof *dots + size + 1);
    if (!element)
        return NULL;
    *element = (struct crdt_element){.size = size, .n_dots = n_dots};
    if (n_dots > 0)
        memcpy(element->dots, dots, n_dots * sizeof *dots);
    char *to = (char *)(element->dots + n_dots);
    if (size > 0)
        memcpy(to, bytes, size);
    to[size] = '\0';
    return element;
}

/* ---- sorted ---- */

static int compare_bytes(const void *a, size_t a_size, const void *b, size_t b_size)
{
    size_t common = a_size < b_size ? a_size : b_size;
    int order = common > 0 ? memcmp(a, b, common) : 0;
    return order != 0 ? order : (a_size > b_size) - (a_size < b_size);
}

static int compare_elements(const struct crdt_element *a, const struct crdt_element *b)
{
    return compare_bytes(crdt_element_bytes(a), a->size, crdt_element_bytes(b), b->size);
}

size_t crdt_elements_place(const struct crdt_elements *elements, const void *bytes, size_t size)
{
    size_t low = 0, high = elements->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct crdt_element *at = elements->all[middle];
        if (compare_bytes(crdt_element_bytes(at), at->size, bytes, size) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool crdt_elements_has(const struct crdt_elements *elements, size_t place, const void *bytes,
                       size_t size)
{
    if (place >= elements->n)
        return false;
    const struct crdt_element *at = elements->all[place];
    return compare_bytes(crdt_element_bytes(at), at->size, bytes, size) == 0;
}

int crdt_elements_reserve(struct crdt_elements *elements)
{
    if (elements->n < elements->room)
        return 0;
    size_t room = elements->room ? 2 * elements->room : 8;
    struct crdt_element **all = realloc(elements->all, room * sizeof *all);
    if (!all)
        return ENOMEM;
    elements->all = all;
    elements->room = room;
    return 0;
}

void crdt_elements_put(struct crdt_elements *elements, struct crdt_element *element)
{
    const char *bytes = crdt_element_bytes(element);
    size_t place = crdt_elements_place(elements, bytes, element->size);
    struct crdt_element **at = &elements->all[place];
    if (crdt_elements_has(elements, place, bytes, element->size)) {
        free(*at);
    } else {
        memmove(at + 1, at, (elements->n - place) * sizeof *at);
        elements->n++;
    }
    *at = element;
}

void crdt_elements_remove(struct crdt_elements *elements, size_t place)
{
    struct crdt_element **at = &elements->all[place];
    free(*at);
    elements->n--;
    memmove(at, at + 1, (elements->n - place) * sizeof *at);
}

void crdt_elements_free(struct crdt_elements *elements)
{
    for (size_t i = 0; i < elements->n; i++)
        free(elements->all[i]);
    free(elements->all);
    *elements = (struct crdt_elements){0};
}

/* ---- merging ---- */

/* One side of a merge: the dots of an element that it may lack, and what it has seen. */
struct side {
    const struct crdt_element *element; /* NULL: not there */
    const struct crdt_counts *seen;
};

/* Halved, not walked: a hostile element has tens of thousands. */
static bool has_dot(const struct crdt_element *element, const struct crdt_dot *dot)
{
    size_t low = 0, high = element ? element->n_dots : 0;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = memcmp(element->dots[middle].id, dot->id, sizeof dot->id);
        if (order == 0)
            return element->dots[middle].n == dot->n;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

static bool survives(const struct crdt_dot *dot, const struct side *other)
{
    return has_dot(other->element, dot) || dot->n > crdt_counts_up(other->seen, dot->id);
}

/* Of one replica, at most one side's dot survives, unless both have the same one. */
static size_t merge_dots(struct crdt_dot *out, const struct side *a, const struct side *b)
{
    size_t i = 0, j = 0, n = 0;
    size_t a_n = a->element ? a->element->n_dots : 0, b_n = b->element ? b->element->n_dots : 0;
    while (i < a_n || j < b_n) {
        const struct crdt_dot *x = i < a_n ? &a->element->dots[i] : NULL;
        const struct crdt_dot *y = j < b_n ? &b->element->dots[j] : NULL;
        int order = !x ? 1 : !y ? -1 : memcmp(x->id, y->id, sizeof x->id);
        bool keep_x = order <= 0 && survives(x, b);
        bool keep_y = order >= 0 && !keep_x && survives(y, a);
        if (keep_x || keep_y)
            out[n++] = keep_x ? *x : *y;
        i += order <= 0;
        j += order >= 0;
    }
    return n;
}

/* dots: room for all of both sides. There is room in out. */
static int merge_element(struct crdt_elements *out, struct crdt_dot *dots, const struct side *a,
                         const struct side *b)
{
    const struct crdt_element *from = a->element ? a->element : b->element;
    size_t n = merge_dots(dots, a, b);
    if (n == 0)
        return 0;
    struct crdt_element *merged = crdt_element_new(dots, n, crdt_element_bytes(from), from->size);
    if (!merged)
        return ENOMEM;
    out->all[out->n++] = merged;
    return 0;
}

static int merge_sorted(struct crdt_elements *out, struct crdt_dot *dots,
                        const struct crdt_state *a, const struct crdt_state *b)
{
    size_t i = 0, j = 0;
    while (i < a->elements.n || j < b->elements.n) {
        struct side left = {i < a->elements.n ? a->elements.all[i] : NULL, &a->counts};
        struct side right = {j < b->elements.n ? b->elements.all[j] : NULL, &b->counts};
        int order = !left.element    ? 1
                    : !right.element ? -1
                                     : compare_elements(left.element, right.element);
        if (order < 0)
            right.element = NULL;
        if (order > 0)
            left.element = NULL;
        if (merge_element(out, dots, &left, &right))
            return ENOMEM;
        i += order <= 0;
        j += order >= 0;
    }
    return 0;
}

int crdt_elements_merge(struct crdt_elements *out, const struct crdt_state *a,
                        const struct crdt_state *b)
{
    size_t room = a->elements.n + b->elements.n;
    if (room == 0)
        return 0;
    struct crdt_dot *dots = malloc((a->counts.n + b->counts.n) * sizeof *dots);
    out->all = malloc(room * sizeof *out->all);
    out->room = out->all ? room : 0;
    int failed = dots && out->all ? merge_sorted(out, dots, a, b) : ENOMEM;
    free(dots);
    if (failed)
        crdt_elements_free(out);
    return failed;
}

/* ---- comparing ---- */

static bool same_dots(const struct crdt_element *a, const struct crdt_element *b)
{
    if (a->n_dots != b->n_dots)
        return false;
    for (size_t i = 0; i < a->n_dots; i++) {
        const struct crdt_dot *x = &a->dots[i], *y = &b->dots[i];
        if (x->n != y->n || memcmp(x->id, y->id, sizeof x->id) != 0)
            return false;
    }
    return true;
}

bool crdt_elements_equal(const struct crdt_elements *a, const struct crdt_elements *b)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++) {
        if (compare_elements(a->all[i], b->all[i]) != 0 || !same_dots(a->all[i], b->all[i]))
            return false;
    }
    return true;
}

/* ---- what programs call ---- */

/* Takes the place of all adds of this element that were seen. */
static enum stile_status add(struct stile_crdt *crdt, const void *bytes, size_t size,
                             struct stile_error *err)
{
    struct crdt_state *state = &crdt->state;
    struct crdt_dot dot = {.n = crdt_counts_up(&state->counts, crdt->replica) + 1};
    if (dot.n > CRDT_COUNT_MAX)
        return error_set(err, STILE_MISUSE, 0, "this replica cannot count any further");
    memcpy(dot.id, crdt->replica, sizeof dot.id);
    struct crdt_element *element = crdt_element_new(&dot, 1, bytes, size);
    struct crdt_count *count = NULL;
    /* Last: an entry that counts nothing would stay. */
    if (element && !crdt_elements_reserve(&state->elements))
        count = crdt_counts_make(&state->counts, crdt->replica);
    if (!count) {
        free(element);
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    }
    count->up = dot.n;
    crdt_elements_put(&state->elements, element);
    return STILE_OK;
}

static enum stile_status check_set(const struct stile_crdt *crdt, const void *element, size_t size,
                                   const char *doing, struct stile_error *err)
{
    enum stile_status status =
        crdt_check_kind(crdt, STILE_CRDT_ORSET, STILE_CRDT_ORSET, doing, err);
    return status ? status : crdt_check_bytes(element, size, doing, err);
}

enum stile_status stile_orset_add(struct stile_crdt *crdt, const void *element, size_t size,
                                  struct stile_error *err)
{
    static const char doing[] = "adding to a set";
    enum stile_status status = check_set(crdt, element, size, doing, err);
    if (status)
        return status;
    status = add(crdt, element, size, err);
    return status ? error_wrap(err, status, "%s", doing) : STILE_OK;
}

enum stile_status stile_orset_remove(struct stile_crdt *crdt, const void *element, size_t size,
                                     struct stile_error *err)
{
    enum stile_status status = check_set(crdt, element, size, "removing from a set", err);
    if (status)
        return status;
    size_t place = crdt_elements_place(&crdt->state.elements, element, size);
    if (crdt_elements_has(&crdt->state.elements, place, element, size))
        crdt_elements_remove(&crdt->state.elements, place);
    return STILE_OK;
}

bool stile_orset_has(const struct stile_crdt *crdt, const void *element, size_t size)
{
    if (check_set(crdt, element, size, "", NULL))
        return false;
    const struct crdt_elements *elements = &crdt->state.elements;
    return crdt_elements_has(elements, crdt_elements_place(elements, element, size), element, size);
}

size_t stile_orset_count(const struct stile_crdt *crdt)
{
    return crdt ? crdt->state.elements.n : 0;
}

void stile_orset_each(const struct stile_crdt *crdt, stile_orset_fn *fn, void *data)
{
    for (size_t i = 0; i < stile_orset_count(crdt) && fn; i++) {
        const struct crdt_element *element = crdt->state.elements.all[i];
        if (fn(crdt_element_bytes(element), element->size, data))
            return;
    }
}
