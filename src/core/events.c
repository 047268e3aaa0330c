/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "core/events.h"

#include "core/admin.h"
#include "core/cell_call.h"
#include "core/client.h"
#include "core/inspect.h"
#include "core/job_call.h"
#include "core/lock.h"
#include "core/question.h"

static void session_renewed(struct engine *engine, const void *session, uint64_t sent_ns,
                            uint64_t ttl_ns)
{
    lease_session_renewed(engine->core, session, sent_ns, ttl_ns);
}

static void session_unknown(struct engine *engine, const void *session)
{
    struct stile_client *client = engine->core;
    CLIENT_LOG(client, STILE_LOG_INFO, "%s: renewal of the session not answered; it is repeated",
               engine->caps.engine);
    lease_session_unknown(engine->core, session);
}

const struct engine_events core_events = {
    .opened = client_opened,
    .granted = lock_granted,
    .busy = lock_busy,
    .queued = lock_queued,
    .failed = lock_failed,
    .released = lock_released,
    .renewed = lock_renewed,
    .unknown = lock_unknown,
    .lost = lock_lost,
    .session_renewed = session_renewed,
    .session_unknown = session_unknown,
    .session_lost = lock_session_lost,
    .info = inspect_info,
    .record = inspect_record,
    .finding = admin_finding,
    .done = question_done,
    .changed = question_changed,
    .job = job_call_job,
    .job_mark = job_call_mark,
    .job_queue = job_call_queue,
    .job_done = job_call_done,
    .job_arrived = job_call_arrived,
    .cell = cell_call_cell,
    .cell_done = cell_call_done,
};
