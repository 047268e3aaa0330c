/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What a server has stored as a record is read as one, or refused; its texts stay inside it and can
 * be printed. */
#include "fuzz.h"

#include "core/record.h"

static bool is_inside(const char *text, const char *whole, size_t size)
{
    return text >= whole && text + strlen(text) <= whole + size;
}

static bool is_printable(const char *text)
{
    return *text == '\0' || fuzz_is_line(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct stile_last_holder last;
    char *text = fuzz_string(data, size);

    if (record_read(&last, text)) {
        MUST(data[0] == '1' && data[1] == ' ');
        MUST(last.from_ms >= 0 && last.until_ms >= 0 && last.pid >= 0);
        MUST(last.exit_code >= -1 && last.exit_code <= 255);
        MUST(is_inside(last.host, text, size) && is_inside(last.command, text, size));
        MUST(is_printable(last.host) && is_printable(last.command));
        MUST(!strchr(last.host, ' '));
    }
    free(text);
    return 0;
}
