/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault/local_cells_kit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/name.h"

struct stile_error why;

struct stile_client *cells_open(void)
{
    struct stile_client *client;
    char url[80];
    snprintf(url, sizeof url, "local:%s", dir);
    if (stile_client_open(&client, url, NULL, &why))
        fail_msg("%s", why.message);
    return client;
}

enum stile_status cells_put(struct stile_client *client, const char *key, const void *value,
                            size_t size, uint64_t token)
{
    return stile_cell_put(NULL, client, key, value, size, STILE_CELL_OPTIONS(.token = token), &why);
}

enum stile_status cells_put_text(struct stile_client *client, const char *key, const char *text)
{
    return cells_put(client, key, text, strlen(text), 0);
}

void cells_fill(void *value, size_t size, const char *key, unsigned number)
{
    uint64_t word = name_hash(key, strlen(key)) + number * UINT64_C(0x9e3779b97f4a7c15);
    for (size_t i = 0; i < size; i++) {
        word = word * UINT64_C(6364136223846793005) + 1442695040888963407;
        ((uint8_t *)value)[i] = (uint8_t)(word >> 56);
    }
}

bool cells_is_filled(const struct stile_cell *cell, unsigned number)
{
    uint8_t *expected = malloc(cell->size + 1);
    cells_fill(expected, cell->size, cell->key, number);
    bool same = memcmp(expected, cell->value, cell->size) == 0;
    free(expected);
    return same;
}

size_t cells_file_read(uint8_t **bytes)
{
    char path[128];
    struct stat st;
    place_path(path, "cells");
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    *bytes = malloc((size_t)st.st_size);
    assert_int_equal(read(fd, *bytes, (size_t)st.st_size), st.st_size);
    close(fd);
    return (size_t)st.st_size;
}

void cells_file_write(const void *bytes, size_t size)
{
    char path[128];
    place_path(path, "cells");
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, size, 0), size);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    close(fd);
}

unsigned cells_rounds(unsigned usual, unsigned soak)
{
    return getenv("STILE_SOAK") ? soak : usual;
}
