/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes change a sound state file, which is then opened and used. What opening has checked must
 * stay sound in use; nothing may crash or run for ever.
 *
 * The first byte selects the format: even, the rest is the file itself from its start, with the
 * version and boot it must have; odd, the rest is a list of changes {cell: 2 bytes, offset and
 * seal: 1, length: 1, bytes}. A sealed cell gets its right sum again, so that more than the sums is
 * put to the test.
 */
#include "fuzz.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/name.h"
#include "base/url.h"
#include "engines/local/local.h"

extern const struct engine_class local_class;

#define SEAL 0x80

static char dir[64];
static union cell *specimen;
static uint32_t n_used;

/* ---- an engine without core ---- */

static void granted(struct claim *claim, uint64_t token, uint64_t sent_ns, uint64_t ttl_ns)
{
    (void)sent_ns, (void)ttl_ns;
    MUST(token > 0);
    claim->core = claim;
}

static void busy(struct claim *claim, uint64_t hint_ns)
{
    (void)claim, (void)hint_ns;
}

static void ended(struct claim *claim, const struct stile_error *err)
{
    (void)claim, (void)err;
}

static void opened(struct engine *engine, const struct stile_error *err)
{
    *(enum stile_status *)engine->core = err ? err->status : STILE_OK;
}

static void info(struct query *query, const struct stile_info *found)
{
    (void)query;
    MUST(strlen(found->name) <= STILE_NAME_MAX);
}

static void done(struct query *query, const struct stile_error *err)
{
    (void)query, (void)err;
}

static const struct engine_events sink = {.opened = opened,
                                          .granted = granted,
                                          .busy = busy,
                                          .failed = ended,
                                          .released = ended,
                                          .lost = ended,
                                          .info = info,
                                          .done = done};

static struct engine *open_engine(void)
{
    char text[96];
    struct url *url;
    struct loop *loop;
    snprintf(text, sizeof text, "local:%s", dir);
    MUST(url_parse(&url, text, NULL) == STILE_OK && loop_epoll_new(&loop) == 0);
    struct engine *engine = calloc(1, local_class.engine_size);
    MUST(engine);
    enum stile_status status;
    *engine = (struct engine){
        .class = &local_class, .events = &sink, .loop = loop, .label = "x", .core = &status};
    local_class.open(engine, url);
    url_free(url);
    if (!status)
        return engine;
    MUST(status == STILE_CORRUPT);
    loop_free(loop);
    free(engine);
    return NULL;
}

static void close_engine(struct engine *engine)
{
    struct loop *loop = engine->loop;
    local_class.close(engine);
    loop_free(loop);
    free(engine);
}

static struct claim *make_claim(struct engine *engine, const char *name, enum stile_mode mode)
{
    struct claim *claim = calloc(1, sizeof *claim + local_class.claim_size);
    MUST(claim);
    *claim = (struct claim){.engine = engine,
                            .name = name,
                            .name_len = strlen(name),
                            .name_hash = name_hash(name, strlen(name)),
                            .mode = mode,
                            .slots = 2};
    return claim;
}

/* ---- the specimen ---- */

static void remove_dir(void)
{
    const char *names[] = {"state", "live", "epoch", "state.new", "epoch.new", "s", ""};
    char path[96];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        remove(path);
    }
}

static void set_up(void)
{
    static const char *const names[] = {"held", "shared", "slots", "kept"};
    struct claim *claims[4];
    snprintf(dir, sizeof dir, "%s/stile-fuzz-XXXXXX",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    MUST(mkdtemp(dir));
    atexit(remove_dir);
    struct engine *engine = open_engine();
    MUST(engine);
    for (int i = 0; i < 4; i++) {
        claims[i] = make_claim(engine, names[i], i < 3 ? (enum stile_mode)i : STILE_EXCLUSIVE);
        claims[i]->hold_ns = i == 3 ? 3600 * NS_PER_SEC : 0;
        local_class.claim(engine, claims[i]);
    }
    const struct store *store = &local_of(engine)->env->store;
    n_used = store->cells[AT_LEDGER].ledger.n_used;
    specimen = malloc((size_t)n_used * sizeof *specimen);
    MUST(specimen);
    memcpy(specimen, store->cells, (size_t)n_used * sizeof *specimen);
    for (int i = 0; i < 4; i++) {
        local_class.release(engine, claims[i]);
        free(claims[i]);
    }
    close_engine(engine);
}

/* ---- the change ---- */

static void seal(union cell *cell, uint32_t index)
{
    cell->check = cell_sum(cell, index);
}

/* Four that are there once, the list of segments, some buckets, and the rest in turn. */
static uint32_t cell_meant(uint8_t byte)
{
    uint32_t n = byte;
    if (n < 4)
        return n;
    return n < 8 ? AT_SEGMENTS + n - 4 : AT_FIRST + (n - 8) % (n_used - AT_FIRST);
}

static void change(union cell *cells, const uint8_t *data, size_t size)
{
    while (size >= 3) {
        uint32_t index = cell_meant(data[0]);
        size_t offset = data[1] % CELL_BYTES, n = data[2] % (CELL_BYTES + 1 - offset);
        n = n < size - 3 ? n : size - 3;
        memcpy((uint8_t *)&cells[index] + offset, data + 3, n);
        if (data[1] & SEAL)
            seal(&cells[index], index);
        data += 3 + n;
        size -= 3 + n;
    }
}

static void replace(union cell *cells, const uint8_t *data, size_t size)
{
    size_t all = (size_t)n_used * sizeof *cells;
    memcpy(cells, data, size < all ? size : all);
    memcpy(cells[AT_HEADER].header.boot, specimen[AT_HEADER].header.boot, 16);
    seal(&cells[AT_HEADER], AT_HEADER);
}

/* No flipped bit makes a ledger with another generation and the right sum. */
static void keep_generation(union cell *cells)
{
    union cell *ledger = &cells[AT_LEDGER];
    if (ledger->check != cell_sum(ledger, AT_LEDGER))
        return;
    ledger->ledger.generation = specimen[AT_LEDGER].ledger.generation;
    seal(ledger, AT_LEDGER);
}

static void write_state(const union cell *cells)
{
    char path[96];
    snprintf(path, sizeof path, "%s/state", dir);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    size_t size = (size_t)n_used * sizeof *cells;
    MUST(fd >= 0 && pwrite(fd, cells, size, 0) == (ssize_t)size);
    close(fd);
}

/* ---- the use ---- */

static void take_and_give(struct engine *engine, const char *name, enum stile_mode mode)
{
    struct claim *claim = make_claim(engine, name, mode);
    local_class.claim(engine, claim);
    local_class.release(engine, claim);
    free(claim);
}

/* A table that was started over (a new generation) or is large is not looked through when it is
 * opened: what is damaged in it is found in use. */
static bool is_checked(const struct store *store)
{
    const struct ledger_cell *ledger = &store->cells[AT_LEDGER].ledger;
    return ledger->generation == specimen[AT_LEDGER].ledger.generation &&
           ledger->n_used <= CHECKED_CELLS_MAX;
}

static void use(struct engine *engine)
{
    struct query query = {.engine = engine, .name = ""};
    struct store *store = &local_of(engine)->env->store;
    bool in_use, must_be_sound = is_checked(store);
    local_class.list(engine, &query);
    take_and_give(engine, "held", STILE_EXCLUSIVE);
    take_and_give(engine, "shared", STILE_SHARED);
    take_and_give(engine, "slots", STILE_SLOTS);
    take_and_give(engine, "kept", STILE_EXCLUSIVE);
    take_and_give(engine, "a new one", STILE_EXCLUSIVE);
    MUST(!must_be_sound || local_check_all(store, &in_use, NULL) == STILE_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!specimen)
        set_up();
    if (size == 0)
        return 0;
    union cell *cells = malloc((size_t)n_used * sizeof *cells);
    MUST(cells);
    memcpy(cells, specimen, (size_t)n_used * sizeof *cells);
    if (data[0] % 2)
        change(cells, data + 1, size - 1);
    else
        replace(cells, data + 1, size - 1);
    keep_generation(cells);
    write_state(cells);
    free(cells);
    struct engine *engine = open_engine();
    if (engine) {
        use(engine);
        close_engine(engine);
    }
    return 0;
}
