/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Stories of `stile play`: whatever is written in one, it is refused with a line, or it is played
 * to its end in virtual time. */
#include "sim/script.h"

#include "fuzz.h"

/* A story can ask for so many clients and seconds that one takes minutes: longer ones are tried by
 * hand. */
#define TEXT_MAX 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static FILE *page;
    static struct run_result result;
    char error[SCRIPT_ERROR_MAX];
    if (size > TEXT_MAX)
        return 0;
    if (!page)
        page = fopen("/dev/null", "we");
    MUST(page);
    char *text = fuzz_string(data, size);
    bool fine = script_run(&result, text, page, error);
    MUST(memchr(error, 0, sizeof error) && fine == (error[0] == '\0'));
    MUST(fine || !strchr(error, '\n'));
    free(text);
    return 0;
}
