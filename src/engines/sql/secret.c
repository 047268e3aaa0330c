#include "engines/sql/secret.h"

#include <string.h>

#include "mutant.h"

/* A user or host that equals the password is hidden with it: better than the other way round. */
void secret_hide(char *text, const char *secret)
{
    size_t len = secret ? strlen(secret) : 0;
#ifdef MUTANT_SQL_SECRET_SHOWN
    return;
#endif
    for (char *at = text; len > 0 && (at = strstr(at, secret)); at += 3) {
        if (len < 3) { /* no room for the stars: it could be anywhere, so all of it goes */
            strcpy(text, "(hidden: it contains the password)");
            return;
        }
        memmove(at + 3, at + len, strlen(at + len) + 1);
        memcpy(at, "***", 3);
    }
}
