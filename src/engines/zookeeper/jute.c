/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/zookeeper/jute.h"

#include <stdlib.h>
#include <string.h>

#define LENGTH_SIZE 4

/* ---- reading ---- */

static char *take(struct jute_reader *reader, size_t n)
{
    if (reader->bad || (size_t)(reader->end - reader->at) < n) {
        reader->bad = true;
        return NULL;
    }
    char *at = reader->at;
    reader->at += n;
    return at;
}

static uint64_t read_big_endian(struct jute_reader *reader, size_t size)
{
    const unsigned char *at = (const unsigned char *)take(reader, size);
    uint64_t value = 0;
    for (size_t i = 0; at && i < size; i++)
        value = value << 8 | at[i];
    return value;
}

int32_t zk_jute_read_int(struct jute_reader *reader)
{
    return (int32_t)(uint32_t)read_big_endian(reader, 4);
}

int64_t zk_jute_read_long(struct jute_reader *reader)
{
    return (int64_t)read_big_endian(reader, 8);
}

bool zk_jute_read_bool(struct jute_reader *reader)
{
    return read_big_endian(reader, 1) != 0;
}

static char *read_bytes(struct jute_reader *reader, size_t *n)
{
    int32_t len = zk_jute_read_int(reader);
    *n = 0;
    if (len == -1 || reader->bad)
        return NULL;
    if (len < 0) {
        reader->bad = true;
        return NULL;
    }
    char *bytes = take(reader, (size_t)len);
    *n = bytes ? (size_t)len : 0;
    return bytes;
}

const char *zk_jute_read_bytes(struct jute_reader *reader, size_t *n)
{
    return read_bytes(reader, n);
}

/* The length field has been read by now: the text moves over its last byte, which makes room for
 * the NUL without touching the next field. */
const char *zk_jute_read_string(struct jute_reader *reader)
{
    size_t n;
    char *text = read_bytes(reader, &n);
    if (!text || memchr(text, '\0', n)) {
        reader->bad = true;
        return NULL;
    }
    char *moved = text - 1;
    memmove(moved, text, n);
    moved[n] = '\0';
    return moved;
}

void zk_jute_read_strings(struct jute_reader *reader, struct jute_strings *strings)
{
    int32_t n = zk_jute_read_int(reader);
    *strings = (struct jute_strings){0};
    if (n == -1)
        n = 0;
    if (n < 0 || (size_t)n > (size_t)(reader->end - reader->at) / LENGTH_SIZE)
        reader->bad = true;
    if (reader->bad)
        return;
    strings->list = malloc(((size_t)n + 1) * sizeof *strings->list);
    reader->out_of_memory = !strings->list;
    reader->bad = reader->out_of_memory;
    while (!reader->bad && strings->n < (size_t)n)
        strings->list[strings->n++] = zk_jute_read_string(reader);
}

void zk_jute_strings_free(struct jute_strings *strings)
{
    free(strings->list);
    *strings = (struct jute_strings){0};
}

void zk_jute_read_stat(struct jute_reader *reader, struct jute_stat *stat)
{
    stat->czxid = zk_jute_read_long(reader);
    stat->mzxid = zk_jute_read_long(reader);
    stat->ctime = zk_jute_read_long(reader);
    stat->mtime = zk_jute_read_long(reader);
    stat->version = zk_jute_read_int(reader);
    stat->cversion = zk_jute_read_int(reader);
    stat->aversion = zk_jute_read_int(reader);
    stat->ephemeral_owner = zk_jute_read_long(reader);
    stat->data_length = zk_jute_read_int(reader);
    stat->num_children = zk_jute_read_int(reader);
    stat->pzxid = zk_jute_read_long(reader);
}

/* ---- writing ---- */

static void put(struct jute_writer *writer, const void *bytes, size_t n)
{
    if (!writer->failed && buffer_put(&writer->buffer, bytes, n))
        writer->failed = true;
}

static void write_big_endian(struct jute_writer *writer, uint64_t value, size_t size)
{
    unsigned char bytes[8];
    for (size_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)(value >> (8 * (size - 1 - i)));
    put(writer, bytes, size);
}

void zk_jute_begin(struct jute_writer *writer)
{
    buffer_drop(&writer->buffer, buffer_len(&writer->buffer));
    writer->failed = false;
    zk_jute_write_int(writer, 0);
}

void zk_jute_write_int(struct jute_writer *writer, int32_t value)
{
    write_big_endian(writer, (uint32_t)value, 4);
}

void zk_jute_write_long(struct jute_writer *writer, int64_t value)
{
    write_big_endian(writer, (uint64_t)value, 8);
}

void zk_jute_write_bool(struct jute_writer *writer, bool value)
{
    write_big_endian(writer, value, 1);
}

void zk_jute_write_bytes(struct jute_writer *writer, const void *bytes, size_t n)
{
    zk_jute_write_int(writer, bytes ? (int32_t)n : -1);
    if (bytes)
        put(writer, bytes, n);
}

void zk_jute_write_string(struct jute_writer *writer, const char *text)
{
    zk_jute_write_bytes(writer, text, strlen(text));
}

void zk_jute_write_record(struct jute_writer *writer, const char *bytes, size_t n)
{
    put(writer, bytes, n);
}

void zk_jute_put_int(char *at, int32_t value)
{
    for (size_t i = 0; i < 4; i++)
        at[i] = (char)((uint32_t)value >> (8 * (3 - i)));
}

const char *zk_jute_end(struct jute_writer *writer, size_t *n)
{
    *n = buffer_len(&writer->buffer);
    if (writer->failed)
        return NULL;
    zk_jute_put_int(writer->buffer.bytes + writer->buffer.head, (int32_t)(*n - LENGTH_SIZE));
    return buffer_at(&writer->buffer);
}
