/* ShedLock's table: its own statements for mode=table, said with the same parameters. */
#include "engines/sql/shedlock.h"

#include <stdlib.h>

#include "engines/postgres/table.h"
#include "mutant.h"

/* ShedLock's timestamps have no zone, and are UTC. */
#define NOW   "timezone('utc', clock_timestamp())"
#define MS    " * interval '1 ms'"
#define OURS  "'^~?[0-9a-f]{32} '"
#define EPOCH "(extract(epoch from "

#ifdef MUTANT_POSTGRES_SHEDLOCK_TAKES
#define FREE "true"
#else
#define FREE "s.lock_until <= " NOW
#endif

/* Its claims have no token. Ours have one where our own schema is there: \3 stands in front of its
 * name in the table of counters. */
#define COUNTER "E'\\x03@T@:' || "
static const char counted[] =
    "insert into stile.counter as n (name, token) select " COUNTER
    "p.name, f.token + 1 from won, p, stile.floor f on conflict (name) do update set token = "
    "n.token + 1 returning n.token";
static const char uncounted[] = "select 0 as token from won";

/* A commit that is told must not be forgotten by a crash, whatever the role's defaults say. Who
 * asks again with the same owner may have it already. */
static const char claim_sql[] =
    "with p (name, owner, mode, slots, ttl_ms, hold_ms, delay_ms, wait, channel, host, pid, "
    "command) "
    "as (values ($1::text, $2::text, $3::text, $4::int, $5::bigint, $6::bigint, $7::bigint, "
    "$8::boolean, $9::text, $10::text, $11::int, $12::text)), "
    "t as (select " NOW " as now, set_config('synchronous_commit', case when "
    "current_setting('synchronous_commit') in ('off', 'local', 'remote_write') then 'on' else "
    "current_setting('synchronous_commit') end, true)), "
    "won as (insert into @T@ as s (name, lock_until, locked_at, locked_by) select p.name, "
    "t.now + greatest(p.ttl_ms, p.hold_ms)" MS ", t.now, left(p.owner || ' ' || p.pid || '@' || "
    "p.host || ' ' || p.command, 255) from p, t on conflict (name) do update set lock_until = "
    "excluded.lock_until, locked_at = excluded.locked_at, locked_by = excluded.locked_by "
    "where " FREE " or starts_with(s.locked_by, $2::text) returning s.name), "
    "counted as (@N@) "
    "select coalesce((select 'g ' || token from counted), 'b ' || greatest(1, (select ceil(" EPOCH
    "s.lock_until - t.now)) * 1000) from @T@ s, t, p where s.name = p.name))) as " TAG;
/* $4: hold_at_least. What is kept back by it is nobody's any more: a ~ in front says so. */
static const char release_sql[] =
    "with r as (update @T@ s set lock_until = k.till, locked_by = case when k.till > " NOW
    " then left('~' || s.locked_by, 255) else s.locked_by end from (select case when $3::boolean "
    "then " NOW " else greatest(" NOW ", h.locked_at + $4::bigint" MS ") end as till from @T@ h "
    "where h.name = $1::text) k where s.name = $1::text and starts_with(s.locked_by, $2::text) and "
    "s.lock_until > " NOW " returning 1) select exists (select from r) as " TAG;
static const char renew_sql[] =
    "update @T@ s set lock_until = greatest(s.lock_until, " NOW " + r.ttl_ms" MS ") from "
    "unnest($1::text[], $2::bigint[]) r (owner, ttl_ms) where left(s.locked_by, 32) = r.owner "
    "and s.lock_until > " NOW " returning r.owner as " TAG;
static const char resume_sql[] =
    "with r as (update @T@ s set lock_until = greatest(s.lock_until, " NOW " + $3::bigint" MS ") "
    "where s.name = $1::text and starts_with(s.locked_by, $2::text) and s.lock_until > " NOW
    " returning s.name) select coalesce(@N@, 0) as " TAG " from r";
static const char break_sql[] =
    "with h as (select coalesce(@N@, 0) as token from @T@ r where r.name = $1::text and "
    "r.lock_until > " NOW "), b as (update @T@ s set lock_until = " NOW " from h where s.name = "
    "$1::text and $2::bigint in (0, h.token) returning 1) "
    "select case when exists (select from h) then (select count(*) from b) else -1 end as " TAG;

#define VIEW                                                                                       \
    "s.name is not null, starts_with(s.locked_by, '~'), 'exclusive', @N@, " EPOCH NOW              \
    " - s.locked_at) * 1000)::bigint, " EPOCH "s.lock_until - " NOW                                \
    ") * 1000)::bigint, substring(s.locked_by from " OURS "'(\\d+)@'), "                           \
    "case when s.locked_by ~ " OURS " then substring(s.locked_by from '@([^ ]*)') else "           \
    "s.locked_by end, case when s.locked_by ~ " OURS " then substring(s.locked_by from '@[^ ]* "   \
    "(.*)') else '' end, case when s.locked_by ~ " OURS                                            \
    " then left(ltrim(s.locked_by, '~'), 32) else "                                                \
    "s.locked_by end, @N@ "
static const char show_sql[] =
    "select r.name as " TAG ", " VIEW "from (select $1::text as name) r left join @T@ s "
    "on s.name = r.name and s.lock_until > " NOW;
static const char list_sql[] =
    "select r.name as " TAG ", " VIEW "from @T@ r join @T@ s on s.name = r.name where "
    "r.lock_until > " NOW " and ($1::text is null or starts_with(r.name, "
    "$1::text) or starts_with(r.name, E'\\x01')) order by r.name";
static const char token_sql[] =
    "(select n.token from stile.counter n where n.name = " COUNTER "r.name)";

static char *expand(const struct pg *pg, const char *pattern, const char *other)
{
    char *inner = shedlock_expand(other, pg->options.table, "");
    char *text = inner ? shedlock_expand(pattern, pg->options.table, inner) : NULL;
    free(inner);
    return text;
}

enum stile_status shedlock_prepare(struct pg *pg, struct stile_error *err)
{
    const char *token = pg->bare ? "null::bigint" : token_sql;
    const struct {
        struct statement *statement;
        const char *pattern, *other;
    } all[SHEDLOCK_STATEMENTS] = {{&pg->table.claim, claim_sql, pg->bare ? uncounted : counted},
                                  {&pg->table.release, release_sql, ""},
                                  {&pg->table.renew, renew_sql, ""},
                                  {&pg->table.resume, resume_sql, token},
                                  {&pg->table.break_, break_sql, token},
                                  {&pg->table.show, show_sql, token},
                                  {&pg->table.list, list_sql, token}};
    for (size_t i = 0; i < SHEDLOCK_STATEMENTS; i++) {
        pg->shedlock[i] = expand(pg, all[i].pattern, all[i].other);
        if (!pg->shedlock[i])
            return error_set(err, STILE_NOMEM, 0, "out of memory");
        *all[i].statement = (struct statement){0, pg->shedlock[i]};
    }
    return STILE_OK;
}

void shedlock_free(struct pg *pg)
{
    for (size_t i = 0; i < SHEDLOCK_STATEMENTS; i++)
        free(pg->shedlock[i]);
}
