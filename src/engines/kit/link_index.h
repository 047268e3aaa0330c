/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The requests of a link by the data of their requester, so that forgetting one of 50,000 looks at
 * none of the others. */
#ifndef STILE_KIT_LINK_INDEX_H
#define STILE_KIT_LINK_INDEX_H

#include <stddef.h>

struct link_request;

#define LINK_INDEX_FEW 8

/* All zero: empty. */
struct link_index {
    struct link_request *few[LINK_INDEX_FEW]; /* the buckets, as long as they are enough */
    struct link_request **many;               /* NULL: few */
    size_t size, n;                           /* size: of many, a power of two */
};

void link_index_add(struct link_index *index, struct link_request *request);
void link_index_remove(struct link_index *index, struct link_request *request);
/* The first request with this data, and the next one behind it; NULL: none. */
struct link_request *link_index_first(const struct link_index *index, const void *data);
struct link_request *link_index_next(const struct link_request *request);
void link_index_free(struct link_index *index);

#endif
