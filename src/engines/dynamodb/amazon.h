/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* dialect=amazon: the items of Amazon's lock client for Java.
 *
 *     key  S  the name itself        ownerName            S  stile: the owner value
 *     leaseDuration  S  in ms        recordVersionNumber  S  changes with every heartbeat
 *     isReleased     S  "1"
 *
 * The other client replaces whole items and may delete them, so a token cannot live there. It comes
 * from the table's counter, and a grant takes three writes: the lock, the counter, and the token
 * into the lock on the condition that it is still ours. The third shows that the counter was raised
 * while the lock was held. */
#ifndef STILE_DYNAMODB_AMAZON_H
#define STILE_DYNAMODB_AMAZON_H

#include "engines/dynamodb/writes.h"

extern const struct dialect ddb_amazon; /* in amazon.c; ddb_own is in writes.c */

#endif
