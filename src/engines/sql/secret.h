/* What is said to people has no secrets in it. */
#ifndef STILE_SQL_SECRET_H
#define STILE_SQL_SECRET_H

/* In place, the password becomes stars. secret may be NULL; text has room for 40 bytes. */
void secret_hide(char *text, const char *secret);

#endif
