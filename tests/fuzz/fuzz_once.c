/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What is stored for a key of once is read as a record, or refused with a sentence. What is read
 * stays inside the value, and is written back as it was. */
#include "fuzz.h"
#include "recipes/once_form.h"
#include "stile.h"

static bool is_inside(const char *part, size_t n, const uint8_t *value, size_t size)
{
    const char *from = (const char *)value;
    return part >= from && n <= size && part + n <= from + size;
}

int LLVMFuzzerTestOneInput(const uint8_t *value, size_t size)
{
    struct once_record record;
    struct stile_error err = {0};
    if (size > STILE_CELL_MAX)
        return 0;
    if (once_read(&record, value, size, &err)) {
        MUST(err.status == STILE_CORRUPT && fuzz_is_line(err.message));
        return 0;
    }
    MUST(record.state == STILE_ONCE_RUNNING || record.state == STILE_ONCE_DONE);
    MUST(record.token <= STILE_TOKEN_MAX && record.at_ms >= 0);
    MUST(record.fingerprint_size <= STILE_FINGERPRINT_MAX);
    MUST(is_inside(record.fingerprint, record.fingerprint_size, value, size));
    MUST(!record.bytes || record.size <= STILE_ONCE_OUTPUT_MAX);
    MUST(!record.bytes || is_inside(record.bytes, record.size, value, size));
    char *out = malloc(STILE_CELL_MAX);
    MUST(out && once_write(out, &record) == size && memcmp(out, value, size) == 0);
    free(out);
    return 0;
}
