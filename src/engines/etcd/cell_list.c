/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The list of cells. The server can't tell the size of a value without sending it, so pages are
 * small: with values of cells, one of them fits into an answer. Where other programs have put
 * larger ones, fewer are asked for. The keys of a cell follow one another, the value first; a guard
 * without a value is of no cell, or of one that was removed. Pages have different revisions: a list
 * of many cells shows none of them at the same moment, but compaction does not end it. */
#include <stdlib.h>
#include <string.h>

#include "engines/etcd/cells.h"

#define PAGE 48 /* keys */

struct cell_listing {
    struct cell_listing *next, **link; /* of etcd->listings */
    struct cell_request *request;
    struct key at, end;
    int64_t limit;                 /* keys a page */
    char name[STILE_NAME_MAX + 1]; /* of the cell whose keys are being read; "": none */
    struct cell_found found;
};

static void read_page(struct cell_listing *listing);

static void listing_free(struct cell_listing *listing)
{
    *listing->link = listing->next;
    if (listing->next)
        listing->next->link = listing->link;
    free(listing);
}

static void end(struct cell_listing *listing, const struct stile_error *err)
{
    struct cell_request *request = listing->request;
    listing_free(listing);
    etcd_cell_end(request, err);
}

/* The cell is complete once the keys of another one begin. */
static void report(struct cell_listing *listing)
{
    if (listing->name[0])
        etcd_cell_report(listing->request, listing->name, &listing->found);
    listing->name[0] = '\0';
}

static enum stile_status take(struct cell_listing *listing, const Etcd__KeyValue *kv,
                              struct stile_error *err)
{
    char name[STILE_NAME_MAX + 1];
    enum stile_status status = STILE_OK;
    enum cell_part part = etcd_key_parse_cell(name, etcd_of(listing->request->engine), &kv->key);
    if (part == CELL_VALUE && kv->mod_revision > 0) {
        report(listing);
        strcpy(listing->name, name);
        listing->found =
            (struct cell_found){.version = (uint64_t)kv->mod_revision, .size = kv->value.len};
    } else if ((part == CELL_TOKEN || part == CELL_ISSUER) && strcmp(name, listing->name) == 0) {
        status = part == CELL_TOKEN ? etcd_cell_token(&listing->found, kv, err)
                                    : etcd_cell_issuer(&listing->found, kv, err);
    }
    return status ? error_wrap(err, status, "'%.60s'", name) : STILE_OK;
}

static enum stile_status take_all(struct cell_listing *listing, const Etcd__RangeResponse *range,
                                  struct stile_error *err)
{
    enum stile_status status = STILE_OK;
    for (size_t i = 0; i < range->n_kvs && !status; i++)
        status = take(listing, range->kvs[i], err);
    return status;
}

static bool next_page(struct cell_listing *listing, const Etcd__RangeResponse *range)
{
    return range->more && range->n_kvs > 0 &&
           etcd_key_after(&listing->at, &range->kvs[range->n_kvs - 1]->key);
}

static void on_page(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct cell_listing *listing = data;
    const Etcd__RangeResponse *range = (const Etcd__RangeResponse *)message;
    struct stile_error why;
    if (err && err->native == ETCD_ERROR_TOO_LONG && listing->limit > 1) {
        listing->limit /= 4;
        read_page(listing);
    } else if (err) {
        end(listing, err);
    } else if (take_all(listing, range, &why)) {
        end(listing, &why);
    } else if (next_page(listing, range)) {
        listing->limit = listing->limit * 2 < PAGE ? listing->limit * 2 : PAGE;
        read_page(listing);
    } else {
        report(listing);
        end(listing, NULL);
    }
}

static void read_page(struct cell_listing *listing)
{
    Etcd__RangeRequest request = ETCD__RANGE_REQUEST__INIT;
    struct stile_error err;
    request.key = data_of(&listing->at);
    request.range_end = data_of(&listing->end);
    request.limit = listing->limit;
    if (etcd_conn_request(etcd_of(listing->request->engine)->conn, RPC_RANGE, &request.base,
                          on_page, listing, &err))
        end(listing, &err);
}

static void link_listing(struct cell_listing *listing, struct etcd *etcd)
{
    listing->next = etcd->listings;
    listing->link = &etcd->listings;
    if (listing->next)
        listing->next->link = &listing->next;
    etcd->listings = listing;
}

void etcd_cell_list(struct cell_request *request)
{
    struct etcd *etcd = etcd_of(request->engine);
    struct cell_listing *listing = malloc(sizeof *listing);
    struct stile_error err;
    if (!listing) {
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        etcd_cell_end(request, &err);
        return;
    }
    *listing = (struct cell_listing){.request = request, .limit = PAGE};
    etcd_keys_of_cells(&listing->at, &listing->end, etcd, request->key, request->key_len);
    link_listing(listing, etcd);
    read_page(listing);
}

void etcd_cells_close(struct etcd *etcd)
{
    while (etcd->listings)
        listing_free(etcd->listings);
}
