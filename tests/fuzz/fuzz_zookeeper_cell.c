/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What a node holds is read as a cell, or refused with a sentence. What is read is written back as
 * it was; and no request that passes makes its token or its version smaller. */
#include "engines/zookeeper/cell_form.h"
#include "fuzz.h"

/* In an allocation of just its size. */
static void write_back(const struct zk_cell *cell, const char *data, size_t size)
{
    char head[CELL_HEAD_MAX];
    size_t n = zk_cell_write_head(head, cell);
    MUST(n < CELL_HEAD_MAX && n + cell->size == size);
    MUST(memcmp(head, data, n) == 0 && cell->value == data + n);
}

static void change(const struct zk_cell *cell)
{
    for (int verb = CELL_PUT; verb <= CELL_RAISE; verb++) {
        struct cell_request request = {.verb = (enum cell_verb)verb,
                                       .value = "",
                                       .any_version = true,
                                       .token = cell->token + 1,
                                       .issuer = ""};
        struct zk_cell next;
        if (zk_cell_change(&next, cell, &request, 0))
            continue;
        MUST(next.token == cell->token + 1 && next.version >= cell->version);
        MUST(verb != CELL_PUT || next.version > cell->version);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct zk_cell cell;
    struct stile_error err = {0};
    char *data = size ? malloc(size) : NULL;
    MUST(data || !size);
    if (size)
        memcpy(data, bytes, size);
    if (zk_cell_read(&cell, data, size, &err)) {
        MUST(err.status == STILE_CORRUPT && fuzz_is_line(err.message));
    } else {
        MUST(zk_cell_is_ours(data, size));
        MUST(!cell.live || cell.version > 0);
        MUST(cell.size <= (cell.live ? STILE_CELL_MAX : 0) && cell.token <= STILE_TOKEN_MAX);
        MUST(!*cell.issuer || fuzz_is_line(cell.issuer));
        write_back(&cell, data, size);
        change(&cell);
    }
    free(data);
    return 0;
}
