#include "engines/redis/slot.h"

#include <stdbool.h>
#include <string.h>

#include "mutant.h"

#define POLYNOMIAL 0x1021 /* CRC-16/XMODEM: from 0, most significant bit first */

static uint16_t forth(uint16_t crc, unsigned bits)
{
    while (bits--)
        crc = (uint16_t)(crc << 1 ^ (crc & 0x8000 ? POLYNOMIAL : 0));
    return crc;
}

static uint16_t back(uint16_t crc, unsigned bits)
{
    while (bits--)
        crc = crc & 1 ? (uint16_t)((crc ^ POLYNOMIAL) >> 1 | 0x8000) : crc >> 1;
    return crc;
}

static uint16_t crc_of(const char *bytes, size_t n)
{
    uint16_t crc = 0;
    for (size_t i = 0; i < n; i++)
        crc = forth(crc ^ (uint16_t)((unsigned char)bytes[i] << 8), 8);
    return crc;
}

size_t slot_tag(const char **tag, const char *key, size_t len)
{
    const char *open = memchr(key, '{', len);
    const char *close = open ? memchr(open, '}', len - (size_t)(open - key)) : NULL;
    *tag = open;
    return close && close > open + 1 ? (size_t)(close - open) + 1 : 0;
}

uint16_t slot_of(const char *key, size_t len)
{
    const char *tag;
    size_t n = slot_tag(&tag, key, len);
#ifdef MUTANT_REDIS_SLOT_OF_ALL
    n = 0;
#endif
    return (n ? crc_of(tag + 1, n - 2) : crc_of(key, len)) % SLOTS;
}

static bool is_plain(unsigned c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

/* After a first character the last two bytes are what the wanted CRC, taken back by 16 bits, says;
 * four CRCs are one slot. For every slot there is a first character for which these two are plain
 * as well: the tests try them all. */
void slot_text(char text[SLOT_TEXT], uint16_t slot)
{
    for (char first = '0'; first <= 'z'; first++) {
        for (unsigned high = 0; high < 4 && is_plain((unsigned char)first); high++) {
            unsigned last = back((uint16_t)(slot | high << 14), 16) ^ crc_of(&first, 1);
            if (!is_plain(last >> 8) || !is_plain(last & 0xff))
                continue;
            text[0] = first;
            text[1] = (char)(last >> 8);
            text[2] = (char)(last & 0xff);
            return;
        }
    }
}
