/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Every function of the header, found by the linker. Compiled as C and, by every.cpp, as C++. */
#include <stile.h>

#include <stdio.h>

struct symbol {
    const char *name;
    void (*address)(void);
};

static const struct symbol symbols[] = {
#define X(function) {#function, (void (*)(void))function},
#include "symbols.inc"
#undef X
};

int main(void)
{
    int n = (int)(sizeof symbols / sizeof symbols[0]);

    printf("1..%d\n", n);
    for (int i = 0; i < n; i++)
        printf("%sok %d - %s\n", symbols[i].address ? "" : "not ", i + 1, symbols[i].name);
    return 0;
}
