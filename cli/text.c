/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What a text does to a terminal: its characters, their columns, and those that must not reach it.
 */
#include "cli.h"

size_t text_decode(uint32_t *code, const char *s)
{
    const unsigned char *at = (const unsigned char *)s;
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    if (at[0] == 0)
        return 0;
    if (at[0] < 0x80) {
        *code = at[0];
        return 1;
    }
    size_t len = at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : 2;
    if (at[0] < 0xc2 || at[0] > 0xf4)
        return 0;
    *code = at[0] & (0xffU >> (len + 1));
    for (size_t i = 1; i < len; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return 0;
        *code = *code << 6 | (at[i] & 0x3f);
    }
    bool surrogate = *code >= 0xd800 && *code <= 0xdfff;
    return *code < smallest[len] || *code > 0x10ffff || surrogate ? 0 : len;
}

struct range {
    uint32_t first, last;
};

static bool in_ranges(const struct range *ranges, size_t n, uint32_t code)
{
    for (size_t i = 0; i < n; i++) {
        if (code >= ranges[i].first && code <= ranges[i].last)
            return true;
    }
    return false;
}

/* Unicode's wide blocks and combining marks, coarsely: wcwidth() would need a locale. */
static size_t columns_of(uint32_t code)
{
    static const struct range wide[] = {
        {0x1100, 0x115f},   {0x2e80, 0x303e},   {0x3041, 0x33ff},   {0x3400, 0x4dbf},
        {0x4e00, 0x9fff},   {0xa000, 0xa4cf},   {0xa960, 0xa97f},   {0xac00, 0xd7a3},
        {0xf900, 0xfaff},   {0xfe30, 0xfe6f},   {0xff00, 0xff60},   {0xffe0, 0xffe6},
        {0x1f300, 0x1f64f}, {0x1f680, 0x1f6ff}, {0x1f900, 0x1f9ff}, {0x20000, 0x3fffd}};
    static const struct range none[] = {{0x0300, 0x036f}, {0x0483, 0x0489},  {0x0591, 0x05bd},
                                        {0x0610, 0x061a}, {0x064b, 0x065f},  {0x1ab0, 0x1aff},
                                        {0x1dc0, 0x1dff}, {0x20d0, 0x20ff},  {0xfe00, 0xfe0f},
                                        {0xfe20, 0xfe2f}, {0xe0100, 0xe01ef}};
    if (code < 0x300)
        return 1;
    if (in_ranges(none, sizeof none / sizeof none[0], code))
        return 0;
    return in_ranges(wide, sizeof wide / sizeof wide[0], code) ? 2 : 1;
}

size_t text_columns(const char *s)
{
    size_t columns = 0, len;
    uint32_t code = 0;
    for (; (len = text_decode(&code, s)) > 0; s += len)
        columns += columns_of(code);
    return columns;
}

/* Control characters, and those that are invisible or change the writing direction: no name may
 * look like another. */
bool text_is_unsafe(uint32_t code)
{
    static const struct range unsafe[] = {{0x00, 0x1f},     {0x7f, 0x9f},     {0x00ad, 0x00ad},
                                          {0x061c, 0x061c}, {0x200b, 0x200f}, {0x2028, 0x202e},
                                          {0x2060, 0x206f}, {0xfeff, 0xfeff}, {0xfff9, 0xfffb}};
    return in_ranges(unsafe, sizeof unsafe / sizeof unsafe[0], code);
}
