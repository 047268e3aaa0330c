/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target over its corpus as a plain test: corpus-NAME DIRECTORY. One TAP case a file,
 * in byte order, then one for no bytes at all. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INPUT_MAX (1 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int is_input(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static void run_file(const char *directory, const char *name, int number)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "rb");
    uint8_t *data = malloc(INPUT_MAX);
    if (!file || !data) {
        printf("not ok %d - %s: cannot be read\n", number, name);
        exit(1);
    }
    size_t size = fread(data, 1, INPUT_MAX, file);
    fclose(file);
    /* Its own allocation of just this size, so that a sanitizer sees a read behind its end. */
    uint8_t *exact = malloc(size ? size : 1);
    if (!exact)
        abort();
    memcpy(exact, data, size);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
    free(data);
    printf("ok %d - %s\n", number, name);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    struct dirent **entries;
    int n = argc == 2 ? scandir(argv[1], &entries, is_input, alphasort) : -1;
    if (n < 1) {
        fprintf(stderr, "%s: no corpus in %s\n", argv[0], argc == 2 ? argv[1] : "(not given)");
        return 1;
    }
    printf("1..%d\n", n + 1);
    for (int i = 0; i < n; i++) {
        run_file(argv[1], entries[i]->d_name, i + 1);
        free(entries[i]);
    }
    free(entries);
    LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
    printf("ok %d - nothing\n", n + 1);
    return 0;
}
