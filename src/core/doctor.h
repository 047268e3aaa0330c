/* stile_doctor(): asks the engine to look at itself. */
#ifndef STILE_DOCTOR_H
#define STILE_DOCTOR_H

#include "engines/engine.h"

/* As engine_events has it. */
void doctor_finding(struct query *query, const struct stile_finding *finding);

#endif
