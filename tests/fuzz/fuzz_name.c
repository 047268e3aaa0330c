/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A name is accepted exactly by its rule; its hash depends on every byte and on nothing else. */
#include "fuzz.h"

#include "base/name.h"

static bool is_allowed(const uint8_t *data, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (data[i] < ' ' || data[i] == 127)
            return false;
    return size >= 1 && size <= 512;
}

static void check_hash(const uint8_t *data, size_t size)
{
    uint64_t hash = name_hash((const char *)data, size);
    char *moved = malloc(size + 8);

    MUST(moved);
    memset(moved, 0xa5, size + 8);
    memcpy(moved + 3, data, size);
    MUST(name_hash(moved + 3, size) == hash);
    for (size_t i = 0; i < size; i++) {
        moved[3 + i] ^= (char)(data[size - 1] | 1);
        MUST(name_hash(moved + 3, size) != hash);
        moved[3 + i] = (char)data[i];
    }
    free(moved);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct stile_error err = {.status = STILE_OK};
    enum stile_status status = name_check((const char *)data, size, &err);

    MUST(status == (is_allowed(data, size) ? STILE_OK : STILE_MISUSE));
    MUST(status == err.status);
    MUST(status == STILE_OK || fuzz_is_line(err.message));
    if (size <= STILE_NAME_MAX)
        check_hash(data, size);
    return 0;
}
