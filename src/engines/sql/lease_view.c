#include "engines/sql/lease_view.h"

#include <stdlib.h>

static const char *text_of(const char *cell)
{
    return cell ? cell : "";
}

static int64_t number(const char *cell)
{
    return strtoll(text_of(cell), NULL, 10);
}

static bool is_true(const char *cell)
{
    return *text_of(cell) == 't' || *text_of(cell) == '1';
}

static enum stile_mode mode_of(const char *word)
{
    return *word == 'e' ? STILE_EXCLUSIVE : *word && word[1] == 'h' ? STILE_SHARED : STILE_SLOTS;
}

void lease_read(struct stile_claim_info *claim, const char *const cells[ROW_COLUMNS])
{
    int64_t age = number(cells[ROW_AGE_MS]);
    bool held = is_true(cells[ROW_HELD]);
    *claim = (struct stile_claim_info){
        .held = held,
        .ghost = held && is_true(cells[ROW_GHOST]),
        .mode = mode_of(text_of(cells[ROW_MODE])),
        .token = strtoull(text_of(cells[ROW_TOKEN]), NULL, 10),
        .age_ms = age > 0 ? age : 0,
        .expires_ms = *text_of(cells[ROW_LEFT_MS]) ? number(cells[ROW_LEFT_MS]) : STILE_NO_DEADLINE,
        .pid = number(cells[ROW_PID]),
        .host = text_of(cells[ROW_HOST]),
        .command = text_of(cells[ROW_COMMAND]),
        .owner = text_of(cells[ROW_OWNER])};
}
