/* SHA1 as in FIPS 180-4, by hand: here it is a name and protects nothing, and OpenSSL's own would
 * load configuration and providers into every short-lived command that speaks plain redis://. */
#include "engines/redis/lua.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define BLOCK 64

static uint32_t rotate(uint32_t x, unsigned n)
{
    return x << n | x >> (32 - n);
}

static void spread(uint32_t w[80], const unsigned char *block)
{
    for (int i = 0; i < 16; i++, block += 4)
        w[i] = (uint32_t)block[0] << 24 | (uint32_t)block[1] << 16 | (uint32_t)block[2] << 8 |
               block[3];
    for (int i = 16; i < 80; i++)
        w[i] = rotate(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
}

static void absorb(uint32_t h[5], const unsigned char *block)
{
    uint32_t w[80], a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];

    spread(w, block);
    for (int i = 0; i < 80; i++) {
        uint32_t f, k;
        if (i < 20)
            f = (b & c) | (~b & d), k = 0x5a827999;
        else if (i < 40)
            f = b ^ c ^ d, k = 0x6ed9eba1;
        else if (i < 60)
            f = (b & c) | (b & d) | (c & d), k = 0x8f1bbcdc;
        else
            f = b ^ c ^ d, k = 0xca62c1d6;
        uint32_t next = rotate(a, 5) + f + e + k + w[i];
        e = d, d = c, c = rotate(b, 30), b = a, a = next;
    }
    h[0] += a, h[1] += b, h[2] += c, h[3] += d, h[4] += e;
}

static void sha1(uint32_t h[5], const char *text, size_t len)
{
    unsigned char last[2 * BLOCK] = {0};
    size_t whole = len / BLOCK * BLOCK, rest = len - whole;
    size_t padded = rest < BLOCK - 8 ? BLOCK : 2 * BLOCK;
    static const uint32_t start[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};

    memcpy(h, start, sizeof start);
    for (size_t at = 0; at < whole; at += BLOCK)
        absorb(h, (const unsigned char *)text + at);
    memcpy(last, text + whole, rest);
    last[rest] = 0x80;
    for (unsigned i = 0; i < 8; i++)
        last[padded - 1 - i] = (unsigned char)((uint64_t)len * 8 >> 8 * i);
    for (size_t at = 0; at < padded; at += BLOCK)
        absorb(h, last + at);
}

void lua_init(struct lua *lua, const char *source)
{
    uint32_t h[5];

    *lua = (struct lua){.source = source, .len = strlen(source)};
    sha1(h, source, lua->len);
    for (int i = 0; i < 5; i++)
        snprintf(lua->sha1 + 8 * i, 9, "%08x", h[i]);
}
