/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "layout.h"

int main(void)
{
    int n = 0;

    while (layout_now[n].name)
        n++;
    printf("1..%d\n", n);
    for (int i = 0; i < n; i++)
        printf("%sok %d - %s: %zu\n", layout_then[i].offset == layout_now[i].offset ? "" : "not ",
               i + 1, layout_now[i].name, layout_now[i].offset);
    return 0;
}
