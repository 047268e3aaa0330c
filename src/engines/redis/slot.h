/* The slots of a Redis Cluster: which of them a key is in, and how to get other keys in there. */
#ifndef STILE_REDIS_SLOT_H
#define STILE_REDIS_SLOT_H

#include <stddef.h>
#include <stdint.h>

#define SLOTS 16384

/* What a Cluster hashes instead of the whole key: the text between the first { and the first }
 * behind it, unless that is empty. Its length with both braces, or 0. */
size_t slot_tag(const char **tag, const char *key, size_t len);

uint16_t slot_of(const char *key, size_t len);

/* Text that is in this slot, all letters and digits. */
#define SLOT_TEXT 3
void slot_text(char text[SLOT_TEXT], uint16_t slot);

#endif
