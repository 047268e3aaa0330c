/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-1, as FIPS 180-4 describes it: scripts of a Redis server go by this sum. It protects nothing
 * here. */
#include <openssl/sha.h>
#include <stdint.h>
#include <string.h>

#define BLOCK 64

static uint32_t rotate(uint32_t x, unsigned n)
{
    return x << n | x >> (32 - n);
}

static uint32_t choose(unsigned round, uint32_t b, uint32_t c, uint32_t d)
{
    if (round < 20)
        return ((b & c) | (~b & d)) + 0x5a827999;
    if (round < 40)
        return (b ^ c ^ d) + 0x6ed9eba1;
    if (round < 60)
        return ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdc;
    return (b ^ c ^ d) + 0xca62c1d6;
}

static void schedule(uint32_t words[80], const unsigned char *block)
{
    for (unsigned i = 0; i < 16; i++)
        words[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
                   (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (unsigned i = 16; i < 80; i++)
        words[i] = rotate(words[i - 3] ^ words[i - 8] ^ words[i - 14] ^ words[i - 16], 1);
}

static void add_block(uint32_t state[5], const unsigned char *block)
{
    uint32_t words[80], a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
    schedule(words, block);
    for (unsigned i = 0; i < 80; i++) {
        uint32_t next = rotate(a, 5) + choose(i, b, c, d) + e + words[i];
        e = d;
        d = c;
        c = rotate(b, 30);
        b = a;
        a = next;
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d, state[4] += e;
}

/* What is behind the last whole block, a one bit, zeros, and the length in bits. */
static void add_rest(uint32_t state[5], const unsigned char *rest, size_t n)
{
    unsigned char last[2 * BLOCK] = {0};
    size_t left = n % BLOCK, room = left < BLOCK - 8 ? BLOCK : 2 * BLOCK;
    memcpy(last, rest, left);
    last[left] = 0x80;
    for (unsigned i = 0; i < 8; i++)
        last[room - 1 - i] = (unsigned char)((uint64_t)n * 8 >> (8 * i));
    add_block(state, last);
    if (room > BLOCK)
        add_block(state, last + BLOCK);
}

unsigned char *SHA1(const unsigned char *bytes, size_t n, unsigned char *sum)
{
    uint32_t state[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    for (size_t at = 0; at + BLOCK <= n; at += BLOCK)
        add_block(state, bytes + at);
    add_rest(state, bytes + n - n % BLOCK, n);
    for (unsigned i = 0; i < SHA_DIGEST_LENGTH; i++)
        sum[i] = (unsigned char)(state[i / 4] >> (24 - 8 * (i % 4)));
    return sum;
}
