-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- The schema of stile. Each part is safe to run again; an older version is brought up to date. Run
-- it as the role that will use it, or grant that role USAGE on the schema and ALL on its tables.
-- Each step is a transaction of its own, and changes only what is missing: no step waits for long,
-- or makes others wait, behind a transaction that was left open.

begin read write;
set search_path = pg_catalog, pg_temp;
set lock_timeout = '5s';
set statement_timeout = 0;
set default_transaction_read_only = off;
set default_transaction_isolation = 'read committed';
select pg_advisory_lock(hashtextextended('stile setup', 0));

create schema if not exists stile;

-- The functions below run with the rights of their owner, and so would a trigger or a function that
-- another role has put here before.
do $$
declare
    v_role text;
begin
    select coalesce(r.rolname, 'public') into v_role
    from (select n.nspowner from pg_namespace n where n.nspname = 'stile'
          union select c.relowner from pg_class c where c.relnamespace = 'stile'::regnamespace
          union select p.proowner from pg_proc p where p.pronamespace = 'stile'::regnamespace
          union select a.grantee from pg_namespace n, aclexplode(n.nspacl) a
                where n.nspname = 'stile' and a.privilege_type = 'CREATE') made (by_role)
    left join pg_roles r on r.oid = made.by_role
    where r.rolname is distinct from current_user and r.rolsuper is not true
    limit 1;
    if found then
        raise 'the schema stile or something in it belongs to %, which could run code as %', v_role,
            current_user
        using hint = format('Run this as %s. If that role should have nothing to do with stile: drop '
                            'schema stile cascade, which forgets all tokens, or revoke its rights.', v_role);
    end if;
end $$;
comment on schema stile is 'locks with fencing tokens: stile setup';

create table if not exists stile.version (version integer primary key);
do $$ begin
    if exists (select from stile.version where version > 3) then
        raise 'the schema stile is newer than this version of stile knows: install a newer one';
    end if;
end $$;

-- One row per name: a token, and its present or last holder. Whether it is held right now is in
-- pg_locks, and in the view stile.locks. Locks that were held for less than some milliseconds need not
-- have left one.
create table if not exists stile.lock (
    name text collate "C" primary key,
    token bigint not null,
    key bigint not null,
    sub smallint not null,
    shared boolean not null,
    owner text not null,
    host text not null,
    pid integer not null,
    command text not null,
    since timestamptz not null,
    backend integer,
    hold_until timestamptz,
    delay_ms bigint
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

do $$ begin
    if to_regclass('stile.lock_by_key') is null then
        create index lock_by_key on stile.lock (key, sub);
    end if;
end $$;
do $$ begin
    if to_regclass('stile.lock_kept_back') is null then
        create index lock_kept_back on stile.lock (name)
        where hold_until is not null or delay_ms is not null;
    end if;
end $$;

-- Tokens of names whose rows were deleted are below this, so that none is ever repeated.
create table if not exists stile.floor (
    one boolean primary key default true check (one),
    token bigint not null
);
insert into stile.floor (token) values (0) on conflict do nothing;

commit;
begin;

-- ---- tokens: an epoch that is on disk, and a counter that a crash forgets ----

-- A token is epoch * 2^20 + a count. Every token that was ever issued is below (epoch + 1) * 2^20 of
-- the epoch that is on disk. The first caller in a new life of the server begins a new epoch and
-- waits for the disk; all others only count. docs/guarantees.md has the argument.

-- Its row exists from the beginning of an epoch to the end of the server's life, which may come as a
-- crash (an unlogged table is emptied then, and empty on a standby that is promoted) or in an orderly
-- way (started). A copy of the table or of its row is another file, or was written by another
-- transaction. Tokens are below `ends`; for the next one a new epoch begins.
-- What was dropped by hand is made again: without one of the three nothing is granted, and with a new one
-- the next epoch begins.
do $$ begin
    if to_regclass('stile.epoch') is null then
        create table stile.epoch (
            one boolean primary key default true check (one),
            epoch bigint not null
        );
    end if;
    if to_regclass('stile.life') is null then
        create unlogged table stile.life (
            one boolean primary key default true check (one),
            started timestamptz not null,
            file text not null,
            made_by xid,
            ends bigint not null
        );
        grant select on stile.life to public;
    end if;
    if to_regclass('stile.tokens') is null then
        -- Older servers have logged sequences only, which do no harm.
        execute case when current_setting('server_version_num')::integer >= 150000
                then 'create unlogged sequence stile.tokens' else 'create sequence stile.tokens' end;
        grant usage on sequence stile.tokens to public;
    end if;
    if not exists (select from stile.epoch) then
        insert into stile.epoch (epoch) values (0);
        delete from stile.life;
    end if;
end $$;
grant select on stile.epoch to public; -- show names a token that later ones are larger than

-- Grants that write no row look whether this number is what it was when they last looked at the name:
-- whatever makes one of them wait, a hold, a delay or a place in the queue, raises it. A sequence is read
-- as it is, not as the statement's snapshot has it, which is older than the lock.
do $$ begin
    if to_regclass('stile.changes') is null then
        execute case when current_setting('server_version_num')::integer >= 150000
                then 'create unlogged sequence stile.changes' else 'create sequence stile.changes' end;
        perform nextval('stile.changes');
        grant usage, select on sequence stile.changes to public;
    end if;
    -- Functions from before it do not raise it: see the last step.
    if exists (select from pg_proc p where p.pronamespace = 'stile'::regnamespace
               and p.proname = 'granted' and p.prosrc not like '%stile.changes%') then
        drop function if exists stile.draw(bigint);
    end if;
end $$;

-- Begins a new epoch, unless another caller just did, and returns a token of it. It is never smaller
-- than the time in seconds since 2020: an older copy of the database, restored or promoted, continues
-- above what was issued after it was made. With its owner's rights, which are more than callers need
-- otherwise; a call can only skip tokens.
create or replace function stile.next_epoch() returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_epoch bigint;
    v_token bigint;
    v_ends bigint;
begin
    if current_setting('synchronous_commit') in ('off', 'local', 'remote_write') then
        perform set_config('synchronous_commit', 'on', true); -- before anybody can see the new one
    end if;
    perform from stile.epoch for update;
    select nextval('stile.tokens'), l.ends into v_token, v_ends from stile.life l
    where l.made_by = l.xmin and l.started = pg_postmaster_start_time()
      and l.file = pg_relation_filepath('stile.life');
    if v_ends - v_token between 1 and 1048576 then
        return v_token;
    end if;
    if exists (select from pg_class c where c.oid = 'stile.life'::regclass and c.relpersistence <> 'u') then
        raise 'the table stile.life is logged: a crash would not empty it, and tokens would be repeated'
            using hint = 'alter table stile.life set unlogged';
    end if;
    update stile.epoch e
    set epoch = greatest(e.epoch + 1, (select s.last_value from stile.tokens s) / 1048576 + 1,
                         extract(epoch from clock_timestamp())::bigint - 1577836800)
    returning e.epoch into strict v_epoch;
    delete from stile.life;
    insert into stile.life (started, file, ends)
    values (pg_postmaster_start_time(), pg_relation_filepath('stile.life'), (v_epoch + 1) * 1048576);
    update stile.life l set made_by = l.xmin;
    perform setval('stile.tokens', v_epoch * 1048576);
    return nextval('stile.tokens');
end $$;

create or replace function stile.next_token() returns bigint
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_token bigint;
    v_ends bigint;
begin
    select nextval('stile.tokens'), l.ends into v_token, v_ends from stile.life l
    where l.made_by = l.xmin and l.started = pg_postmaster_start_time()
      and l.file = pg_relation_filepath('stile.life');
    if v_ends - v_token between 1 and 1048576 then
        return v_token;
    end if;
    return stile.next_epoch();
end $$;

-- The counters of names issued tokens before, or an older `stile setup` has made them do it again:
-- the next epoch is above them all. Roles that may be granted a lock may begin it.
do $$
declare
    g record;
begin
    if exists (select from pg_proc p where p.pronamespace = 'stile'::regnamespace
               and p.proname = 'granted' and p.prosrc like '%stile.next_token()%') then
        return;
    end if;
    update stile.epoch e set epoch = greatest(e.epoch, m.token / 1048576 + 1)
    from (select max(token) as token from (select token from stile.lock
                                           union all select token from stile.floor) t) m;
    delete from stile.life;
    perform setval('stile.tokens', greatest(s.last_value, e.epoch * 1048576)) from stile.tokens s, stile.epoch e;
    for g in
        select format('grant execute on function %s to %s%s', n.oid::regprocedure,
                      coalesce(quote_ident(r.rolname), 'public'),
                      case when a.is_grantable then ' with grant option' else '' end) as statement
        from pg_proc f
        cross join lateral aclexplode(coalesce(f.proacl, acldefault('f', f.proowner))) a
        join pg_proc n on n.pronamespace = f.pronamespace and n.proname in ('next_epoch', 'next_token')
        left join pg_roles r on r.oid = a.grantee
        where f.pronamespace = 'stile'::regnamespace and f.proname = 'granted'
          and a.grantee <> f.proowner
    loop
        execute g.statement;
    end loop;
end $$;

-- Whatever the role's defaults are: a crash must not forget a grant that was answered.
create or replace function stile.durably() returns void language plpgsql
set search_path = pg_catalog, pg_temp as $$
begin
    if current_setting('synchronous_commit') in ('off', 'local', 'remote_write') then
        perform set_config('synchronous_commit', 'on', true);
    end if;
end $$;

-- The caller's session has the advisory lock: draw a token, unless a hold keeps the name back. The
-- row's own token counts too: a call that began before `stile setup` may still have counted there.
create or replace function stile.granted(
    p_name text, p_key bigint, p_sub smallint, p_shared boolean, p_hold_ms bigint,
    p_delay_ms bigint, p_owner text, p_host text, p_pid integer, p_command text
) returns text language plpgsql
set search_path = pg_catalog, pg_temp as $$
declare
    v_now timestamptz := clock_timestamp();
    v_new bigint;
    v_token bigint;
    v_left bigint;
begin
    -- A crash may forget the holder, as it ends all sessions, but not a hold.
    if p_hold_ms is null and p_delay_ms is null then
        perform set_config('synchronous_commit', 'off', true);
    else
        perform stile.durably();
        perform nextval('stile.changes');
    end if;
    v_new := stile.next_token();
    for i in 1 .. 2 loop
        update stile.lock l
        set token = greatest(v_new, l.token + 1), shared = p_shared, owner = p_owner,
            host = p_host, pid = p_pid, command = p_command, since = v_now, backend = pg_backend_pid(),
            hold_until = greatest(v_now + p_hold_ms * interval '1 ms',
                                  case when p_shared and l.shared then l.hold_until end),
            delay_ms = p_delay_ms
        where l.name = p_name
          and (p_shared and l.shared
               or l.delay_ms is null and (l.hold_until is null or l.hold_until <= v_now))
        returning l.token into v_token;
        exit when found;
        insert into stile.lock as l (name, token, key, sub, shared, owner, host, pid, command,
                                     since, backend, hold_until, delay_ms)
        select p_name, greatest(v_new, f.token + 1), p_key, p_sub, p_shared, p_owner, p_host, p_pid,
               p_command, v_now, pg_backend_pid(), v_now + p_hold_ms * interval '1 ms', p_delay_ms
        from stile.floor f
        on conflict (name) do nothing
        returning l.token into v_token;
        exit when found;
        -- A delay that is still there was left by a holder that did not release: it begins now.
        update stile.lock l
        set hold_until = greatest(l.hold_until, v_now + l.delay_ms * interval '1 ms'),
            delay_ms = null, backend = null
        where l.name = p_name and l.delay_ms is not null;
        select ceil(extract(epoch from l.hold_until - clock_timestamp()) * 1000) into v_left
        from stile.lock l where l.name = p_name and l.hold_until > v_now;
        if found then
            return 'h ' || greatest(v_left, 1);
        end if;
    end loop;
    if v_token is null then
        return 'h 1';
    elsif v_token > v_new then
        perform stile.durably(); -- no epoch is known to be above it
    end if;
    return 'g ' || v_token;
end $$;

-- Before the advisory lock is released, if the grant had a hold or a delay.
create or replace function stile.let_go(p_name text, p_token bigint, p_unused boolean)
returns void language sql
set search_path = pg_catalog, pg_temp as $$
    update stile.lock
    set backend = null, delay_ms = null,
        hold_until = case when not p_unused then hold_until end
    where name = p_name and (token = p_token or shared)
$$;

commit;
begin;

-- ---- the queue: waits that are longer than a statement may be ----

-- One row per waiter, in their order. None of them has a statement that waits in the server: the
-- client that releases the lock wakes the first. A row counts as long as its waiter's session has
-- the lock of its mark.
create unlogged table if not exists stile.waiting (
    ticket bigint generated always as identity primary key,
    key bigint not null,
    sub smallint not null,
    shared boolean not null,
    channel text not null,
    backend integer not null default pg_backend_pid(),
    since timestamptz not null default clock_timestamp()
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500);
do $$ begin
    if to_regclass('stile.waiting_in_line') is null then
        create index waiting_in_line on stile.waiting (key, sub, ticket);
    end if;
end $$;

create or replace function stile.mark(p_ticket bigint) returns bigint language sql immutable
set search_path = pg_catalog, pg_temp as $$
    select hashtextextended('stile waits ' || p_ticket, 0)
$$;

-- The queue does not outlive its sessions: a crash may forget it.
create or replace function stile.briefly() returns void language plpgsql
set search_path = pg_catalog, pg_temp as $$
begin
    perform set_config('synchronous_commit', 'off', true);
end $$;

-- Returns its place; stile clients that hold the lock are notified that they have a waiter.
create or replace function stile.park(
    p_key bigint, p_sub smallint, p_shared boolean, p_channel text
) returns bigint language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_ticket bigint;
begin
    perform stile.briefly();
    perform nextval('stile.changes');
    insert into stile.waiting (key, sub, shared, channel, since)
    select p_key, p_sub, p_shared, p_channel,
           clock_timestamp() - coalesce(nullif(w, '')::bigint, 0) * interval '1 ms'
    from current_setting('stile.waited_ms', true) w
    returning ticket into v_ticket;
    perform pg_advisory_lock(stile.mark(v_ticket));
    perform pg_notify('stile', 'p ' || p_sub || ' ' || p_key);
    return v_ticket;
end $$;

create or replace function stile.unpark(p_ticket bigint) returns boolean language plpgsql
set search_path = pg_catalog, pg_temp as $$
begin
    delete from stile.waiting w where w.ticket = p_ticket;
    return pg_advisory_unlock(stile.mark(p_ticket));
end $$;

-- The first live waiter of the queue from this ticket on, of those that would exclude it. Deletes
-- the rows of dead ones.
create or replace function stile.ahead(
    p_key bigint, p_sub smallint, p_shared boolean, p_ticket bigint
) returns text language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    w stile.waiting;
begin
    for w in select * from stile.waiting l
             where l.key = p_key and l.sub = p_sub and not (l.shared and p_shared)
               and (p_ticket is null or l.ticket < p_ticket)
             order by l.ticket loop
        if not pg_try_advisory_xact_lock_shared(stile.mark(w.ticket)) then
            return w.channel;
        end if;
        delete from stile.waiting l where l.ticket = w.ticket;
    end loop;
    return null;
end $$;

-- After a release: wakes the first waiter, and readers together.
create or replace function stile.wake(p_key bigint, p_sub smallint) returns void language plpgsql
set search_path = pg_catalog, pg_temp as $$
declare
    w stile.waiting;
begin
    perform stile.briefly();
    for w in select * from stile.waiting l where l.key = p_key and l.sub = p_sub
             order by l.ticket loop
        if pg_try_advisory_xact_lock_shared(stile.mark(w.ticket)) then
            delete from stile.waiting l where l.ticket = w.ticket;
            continue;
        end if;
        perform pg_notify(w.channel, 'w ' || p_sub || ' ' || p_key);
        exit when not w.shared;
    end loop;
end $$;

-- As stile.granted(), for a caller whose place in the queue is p_ticket, or NULL. "n":
-- others come first, and the lock was released. " w" after a grant: others wait.
create or replace function stile.grant(
    p_name text, p_key bigint, p_sub smallint, p_shared boolean, p_hold_ms bigint,
    p_delay_ms bigint, p_owner text, p_host text, p_pid integer, p_command text, p_ticket bigint
) returns text language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_verdict text;
    v_high integer := (p_key >> 32)::integer;
    v_low integer := ((p_key & 4294967295) << 32 >> 32)::integer;
    v_first text;
    v_token bigint;
    v_ends bigint;
begin
    -- What follows, for the usual case: a name that was held before, without a hold, and nobody waits.
    if not p_shared and p_hold_ms is null and p_delay_ms is null and p_ticket is null then
        perform set_config('synchronous_commit', 'off', true);
        update stile.lock l
        set token = greatest(nextval('stile.tokens'), l.token + 1), shared = false, owner = p_owner,
            host = p_host, pid = p_pid, command = p_command, since = clock_timestamp(),
            backend = pg_backend_pid()
        from stile.life f
        where l.name = p_name and l.hold_until is null and l.delay_ms is null
          and f.made_by = f.xmin and f.started = pg_postmaster_start_time()
          and f.file = pg_relation_filepath('stile.life') and l.token + 1 < f.ends
          and not exists (select from stile.waiting w where w.key = p_key and w.sub = p_sub)
        returning l.token, f.ends into v_token, v_ends;
        if v_token < v_ends then
            return 'g ' || v_token;
        end if;
    end if;
    if exists (select from stile.waiting w where w.key = p_key and w.sub = p_sub
               and (p_ticket is null or w.ticket < p_ticket)) then
        v_first := stile.ahead(p_key, p_sub, p_shared, p_ticket);
    end if;
    if v_first is not null then
        case
            when p_sub = 2 and p_shared then perform pg_advisory_unlock_shared(v_high, v_low);
            when p_sub = 2 then perform pg_advisory_unlock(v_high, v_low);
            when p_shared then perform pg_advisory_unlock_shared(p_key);
            else perform pg_advisory_unlock(p_key);
        end case;
        perform stile.briefly();
        perform pg_notify(v_first, 'w ' || p_sub || ' ' || p_key); -- it may have looked meanwhile
        return 'n';
    end if;
    v_verdict := stile.granted(p_name, p_key, p_sub, p_shared, p_hold_ms, p_delay_ms, p_owner, p_host,
                               p_pid, p_command);
    if v_verdict like 'g%' and p_ticket is not null then
        perform stile.unpark(p_ticket);
    end if;
    if v_verdict like 'g%' and exists (select from stile.waiting w
                                       where w.key = p_key and w.sub = p_sub) then
        return v_verdict || ' w';
    end if;
    return v_verdict;
end $$;

-- Describes locks that this session was granted without a row and has kept for a while: their holder, the
-- tokens, and for how many ms. It does not wait for rows that others have locked.
create or replace function stile.describe(
    p_names text[], p_tokens bigint[], p_keys bigint[], p_ages bigint[],
    p_owner text, p_host text, p_pid integer, p_command text
) returns void language plpgsql set lock_timeout = '100ms'
set search_path = pg_catalog, pg_temp as $$
begin
    perform stile.briefly();
    insert into stile.lock as l (name, token, key, sub, shared, owner, host, pid, command, since, backend)
    select n.name, n.token, n.key, 1, false, p_owner, p_host, p_pid, p_command,
           clock_timestamp() - n.age * interval '1 ms', pg_backend_pid()
    from unnest(p_names, p_tokens, p_keys, p_ages) n (name, token, key, age)
    order by n.name
    on conflict (name) do update
    set token = excluded.token, shared = false, owner = excluded.owner, host = excluded.host,
        pid = excluded.pid, command = excluded.command, since = excluded.since,
        backend = excluded.backend
    where l.token < excluded.token;
end $$;

-- After their release: the next grant may be the same session's, and may write no row.
create or replace function stile.undescribe(p_names text[], p_tokens bigint[]) returns void
language plpgsql set lock_timeout = '100ms'
set search_path = pg_catalog, pg_temp as $$
begin
    perform stile.briefly();
    update stile.lock l set backend = null from unnest(p_names, p_tokens) n (name, token)
    where l.name = n.name and l.token = n.token and l.backend = pg_backend_pid();
end $$;

-- stile break: ends the hold that keeps a name back.
create or replace function stile.unhold(p_name text, p_token bigint)
returns boolean language plpgsql
set search_path = pg_catalog, pg_temp as $$
begin
    update stile.lock set hold_until = null, delay_ms = null
    where name = p_name and p_token in (0, token)
      and (hold_until is not null or delay_ms is not null);
    return found;
end $$;

commit;
begin;

-- ---- mode=row: a row that is locked for as long as a transaction is open ----

-- select from stile.row_lock where name = 'x' for update: the same lock as stile's. The row is
-- never changed, as that would have to wait for the holder: its counter is in stile.lock, under its
-- name with a \2 in front.
create table if not exists stile.row_lock (name text collate "C" primary key);

-- Another session, p_backend, has locked the row: count the grant.
create or replace function stile.row_granted(
    p_name text, p_backend integer, p_shared boolean, p_hold_ms bigint, p_delay_ms bigint,
    p_owner text, p_host text, p_pid integer, p_command text
) returns text language plpgsql
set search_path = pg_catalog, pg_temp as $$
declare
    v_name text := E'\x02' || p_name;
    v_verdict text;
begin
    v_verdict := stile.granted(v_name, hashtextextended(p_name, 1), 1::smallint, p_shared,
                               p_hold_ms, p_delay_ms, p_owner, p_host, p_pid, p_command);
    update stile.lock set backend = p_backend where name = v_name and v_verdict like 'g%';
    return v_verdict;
end $$;

commit;
begin;

-- ---- mode=table: leases in rows, on the database's clock, for connections that are pooled ----

-- One row per name: its counter. Any change of a name locks this row first.
create table if not exists stile.counter (
    name text collate "C" primary key,
    token bigint not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

-- One row per claim that holds or waits.
create table if not exists stile.claim (
    owner text primary key,
    name text collate "C" not null,
    mode text not null check (mode in ('exclusive', 'shared', 'slots')),
    slots integer not null,
    held boolean not null,
    ghost boolean not null default false, -- without a holder: keeps the name until its end
    confirmed boolean not null,           -- its owner knows
    token bigint not null,                -- 0 while it waits
    place bigint not null generated always as identity,
    ttl_ms bigint not null,
    hold_ms bigint,
    delay_ms bigint,
    since timestamptz not null,
    expires_at timestamptz not null,
    hold_until timestamptz,
    channel text,                         -- where its owner listens
    host text not null,
    pid integer not null,
    command text not null
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
do $$ begin
    if to_regclass('stile.claim_in_line') is null then
        create index claim_in_line on stile.claim (name, place);
    end if;
end $$;

commit;
begin;

-- Deletes expired claims; one whose hold lasts on stays as a ghost.
create or replace function stile.table_settle(p_name text) returns void language plpgsql
set search_path = pg_catalog, pg_temp as $$
declare
    v_now timestamptz := clock_timestamp(); -- once: what ends in between would have no ghost
begin
    perform from stile.claim where name = p_name and expires_at <= v_now limit 1;
    if not found then
        return;
    end if;
    update stile.claim
    set ghost = true, owner = '~' || owner, hold_until = null, delay_ms = null,
        expires_at = greatest(expires_at + delay_ms * interval '1 ms', hold_until)
    where name = p_name and held and confirmed and not ghost and expires_at <= v_now
      and (delay_ms is not null or hold_until > v_now);
    delete from stile.claim where name = p_name and expires_at <= v_now;
end $$;

-- Grants the lock to the next waiter, and to all that may share it. Those other than the caller are
-- notified, and have a second to confirm.
create or replace function stile.table_grant(p_name text, p_me text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp as $$
declare
    w stile.claim;
    v_held integer;
    v_same integer;
    v_mode text;
    v_token bigint;
begin
    select count(*), count(*) filter (where c.mode = 'shared') into v_held, v_same
    from stile.claim c where c.name = p_name and c.held;
    v_mode := 'shared';
    for w in select * from stile.claim c where c.name = p_name and not c.held order by c.place loop
        exit when v_held > 0 and w.mode = 'exclusive';
        if w.mode <> v_mode then
            v_mode := w.mode;
            v_same := 0;
            if v_held > 0 then
                select count(*) into v_same
                from stile.claim c where c.name = p_name and c.held and c.mode = v_mode;
            end if;
        end if;
        exit when v_held > 0 and (v_same < v_held or w.mode = 'slots' and v_held >= w.slots);
        update stile.counter n set token = n.token + 1 where n.name = p_name
        returning n.token into v_token;
        update stile.claim c
        set held = true, token = v_token, since = clock_timestamp(),
            confirmed = (c.owner = p_me),
            expires_at = clock_timestamp()
                         + case when c.owner = p_me then c.ttl_ms else 1000 end * interval '1 ms',
            hold_until = case when c.owner = p_me
                         then clock_timestamp() + c.hold_ms * interval '1 ms' end
        where c.owner = w.owner;
        if w.owner <> p_me and w.channel is not null then
            perform pg_notify(w.channel, 'g ' || w.owner);
        end if;
        v_held := v_held + 1;
        v_same := v_same + 1;
        exit when w.mode = 'exclusive';
    end loop;
end $$;

-- "g TOKEN": granted; "b MS": held by others for about that long. A repeated call with the same
-- owner keeps its place, and confirms a grant that was made meanwhile.
create or replace function stile.table_claim(
    p_name text, p_owner text, p_mode text, p_slots integer, p_ttl_ms bigint, p_hold_ms bigint,
    p_delay_ms bigint, p_wait boolean, p_channel text, p_host text, p_pid integer, p_command text
) returns text language plpgsql set lock_timeout = '2s'
set search_path = pg_catalog, pg_temp as $$
declare
    v_token bigint;
    v_left bigint;
    v_mine boolean;
    v_behind boolean := false;
begin
    perform stile.durably();
    if p_ttl_ms < 8000 then
        perform set_config('lock_timeout', greatest(p_ttl_ms / 4, 1)::text, true);
    end if;
    -- Only its own row changes, as in a renewal: nobody else has to be kept out.
    update stile.claim c
    set confirmed = true, channel = p_channel,
        hold_until = coalesce(c.hold_until, clock_timestamp() + c.hold_ms * interval '1 ms'),
        expires_at = clock_timestamp() + p_ttl_ms * interval '1 ms'
    where c.owner = p_owner and c.name = p_name and c.held and c.expires_at > clock_timestamp()
    returning c.token into v_token;
    if found then
        return 'g ' || v_token;
    end if;
    perform from stile.counter n where n.name = p_name for update;
    if not found then
        insert into stile.counter (name, token) select p_name, f.token from stile.floor f
        on conflict do nothing;
        perform from stile.counter n where n.name = p_name for update;
    end if;
    if p_mode = 'exclusive' then
        -- Behind a holder there is nothing to grant: each change of the name has granted what could be.
        select count(*) filter (where c.held) > 0
               and not bool_or(c.expires_at <= clock_timestamp() or c.owner = p_owner),
               ceil(extract(epoch from min(c.expires_at) filter (where c.held) - clock_timestamp()) * 1000)
        into v_behind, v_left from stile.claim c where c.name = p_name;
    end if;
    if not v_behind then
        perform stile.table_settle(p_name);
        update stile.claim c
        set confirmed = c.held, channel = p_channel,
            hold_until = coalesce(c.hold_until, case when c.held
                                  then clock_timestamp() + c.hold_ms * interval '1 ms' end),
            expires_at = clock_timestamp() + p_ttl_ms * interval '1 ms'
        where c.owner = p_owner and c.name = p_name;
        v_mine := found;
    end if;
    if v_mine is not true and (p_wait or not v_behind) then
        insert into stile.claim (owner, name, mode, slots, held, confirmed, token, ttl_ms, hold_ms,
                                 delay_ms, since, expires_at, channel, host, pid, command)
        values (p_owner, p_name, p_mode, p_slots, false, false, 0, p_ttl_ms, p_hold_ms, p_delay_ms,
                clock_timestamp(), clock_timestamp() + p_ttl_ms * interval '1 ms', p_channel,
                p_host, p_pid, p_command);
    end if;
    if not v_behind then
        perform stile.table_grant(p_name, p_owner);
        select c.token into v_token from stile.claim c where c.owner = p_owner and c.held;
        if found then
            return 'g ' || v_token;
        end if;
        if not p_wait then
            delete from stile.claim c where c.owner = p_owner;
            perform stile.table_grant(p_name, p_owner);
        end if;
        select ceil(extract(epoch from min(c.expires_at) - clock_timestamp()) * 1000) into v_left
        from stile.claim c where c.name = p_name and c.held;
    end if;
    -- A place in the queue that a crash forgets is asked for again, and what others were granted here is
    -- in the log before the commits by which they confirm it.
    perform set_config('synchronous_commit', 'off', true);
    return 'b ' || greatest(coalesce(v_left, 1), 1);
end $$;

-- Releases or withdraws a claim. Returns whether there was one. The next holder should not wait for two
-- syncs, this one's and that of its confirmation. So a caller that has set stile.syncs_later is told that
-- the lock was handed over and not synced ('handed'), and syncs that itself before it believes in its release.
create or replace function stile.table_release(p_name text, p_owner text, p_unused boolean)
returns boolean language plpgsql set lock_timeout = '2s'
set search_path = pg_catalog, pg_temp as $$
declare
    v_there boolean;
begin
    perform stile.durably();
    perform from stile.counter n where n.name = p_name for update;
    perform stile.table_settle(p_name);
    delete from stile.claim c
    where c.owner = p_owner and c.name = p_name
      and (p_unused or not c.held or c.hold_until is null or c.hold_until <= clock_timestamp());
    v_there := found;
    if not v_there then
        update stile.claim c
        set ghost = true, owner = '~' || c.owner, expires_at = c.hold_until, hold_until = null,
            delay_ms = null
        where c.owner = p_owner and c.name = p_name;
        v_there := found;
    end if;
    perform stile.table_grant(p_name, '');
    if v_there and current_setting('stile.syncs_later', true) = 'on' then
        perform from stile.claim c where c.name = p_name and c.held and not c.confirmed limit 1;
        if found then
            perform set_config('stile.syncs_later', 'handed', true);
            perform set_config('synchronous_commit', 'off', true);
        end if;
    end if;
    return v_there;
end $$;

-- Returns the owners whose leases were renewed; the others have lost theirs.
create or replace function stile.table_renew(p_owners text[], p_ttls bigint[])
returns setof text language plpgsql set lock_timeout = '2s'
set search_path = pg_catalog, pg_temp as $$
begin
    perform stile.durably();
    perform set_config('lock_timeout', greatest(min(t) / 4, 1)::text, true)
    from unnest(p_ttls) t having min(t) < 8000;
    return query update stile.claim c
    set expires_at = clock_timestamp() + r.ttl_ms * interval '1 ms', ttl_ms = r.ttl_ms
    from unnest(p_owners, p_ttls) r (owner, ttl_ms)
    where c.owner = r.owner and c.held and not c.ghost and c.expires_at > clock_timestamp()
    returning c.owner;
end $$;

create or replace function stile.table_resume(p_name text, p_owner text, p_ttl_ms bigint)
returns bigint language plpgsql set lock_timeout = '2s'
set search_path = pg_catalog, pg_temp as $$
declare
    v_token bigint;
begin
    perform stile.durably();
    update stile.claim c
    set expires_at = clock_timestamp() + p_ttl_ms * interval '1 ms', ttl_ms = p_ttl_ms,
        confirmed = true
    where c.owner = p_owner and c.name = p_name and c.held and not c.ghost
      and c.expires_at > clock_timestamp()
    returning c.token into v_token;
    return v_token;
end $$;

-- Returns how many grants were broken; -1: there is no holder.
create or replace function stile.table_break(p_name text, p_token bigint)
returns integer language plpgsql set lock_timeout = '2s'
set search_path = pg_catalog, pg_temp as $$
declare
    v_broken integer := 0;
    b record;
begin
    perform stile.durably();
    perform from stile.counter n where n.name = p_name for update;
    perform stile.table_settle(p_name);
    if not exists (select from stile.claim c where c.name = p_name and c.held) then
        return -1;
    end if;
    for b in delete from stile.claim c
             where c.name = p_name and c.held and p_token in (0, c.token)
             returning c.owner, c.channel, c.ghost loop
        v_broken := v_broken + 1;
        if b.channel is not null and not b.ghost then
            perform pg_notify(b.channel, 'x ' || b.owner || ' ' || w.breaker)
            from current_setting('stile.broken_by', true) w (breaker) where w.breaker <> '';
            perform pg_notify(b.channel, 'b ' || b.owner);
        end if;
    end loop;
    perform stile.table_grant(p_name, '');
    return v_broken;
end $$;

-- ---- the last holder of each name ----

-- Stores the record unless the stored one has a larger token. It is for people to read: a crash may
-- forget it, no lock waits for it, and one that was not replaced for 30 days is deleted by a later
-- call, a few at a time. Rows that others use are left to the next call: no two of them can block
-- each other.
create or replace function stile.remember(
    p_name text, p_mode text, p_token bigint, p_record text
) returns void language plpgsql set lock_timeout = '250ms'
set search_path = pg_catalog, pg_temp as $$
declare
    v_today date := (clock_timestamp() at time zone 'utc')::date;
begin
    perform stile.briefly();
    insert into stile.last_holder as h (name, mode, token, record, stored_on)
    values (p_name, p_mode, p_token, p_record, v_today)
    on conflict (name, mode) do update
    set token = excluded.token, record = excluded.record, stored_on = excluded.stored_on
    where h.token <= excluded.token;
    if random() < 0.03 then
        delete from stile.last_holder h where h.ctid = any (array(
            select o.ctid from stile.last_holder o where o.stored_on < v_today - 30
            limit 100 for update skip locked));
    end if;
end $$;

-- One row per name and mode, which has tokens of its own. The record says, separated by spaces: 1,
-- token, from, until (Unix milliseconds; 0: not yet), exit code, pid, host, command. When the table
-- is created, it is granted to the roles that may use stile.lock: a role that worked before works
-- afterwards.
do $$
declare
    g record;
begin
    if to_regclass('stile.last_holder') is not null then
        return;
    end if;
    create table stile.last_holder (
        name text collate "C" not null,
        mode text collate "C" not null,
        token bigint not null,
        record text not null,
        stored_on date not null,
        primary key (name, mode)
    ) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
    create index last_holder_by_age on stile.last_holder (stored_on);
    for g in
        select format('grant %s on stile.last_holder to %s%s', a.privilege_type,
                      coalesce(quote_ident(r.rolname), 'public'),
                      case when a.is_grantable then ' with grant option' else '' end) as statement
        from pg_class c cross join lateral aclexplode(c.relacl) a
        left join pg_roles r on r.oid = a.grantee
        where c.oid = 'stile.lock'::regclass and a.grantee <> c.relowner
        union all
        select format('grant execute on function %s to %s%s',
                      'stile.remember(text, text, bigint, text)'::regprocedure,
                      coalesce(quote_ident(r.rolname), 'public'),
                      case when a.is_grantable then ' with grant option' else '' end)
        from pg_proc f
        cross join lateral aclexplode(coalesce(f.proacl, acldefault('f', f.proowner))) a
        left join pg_roles r on r.oid = a.grantee
        where f.pronamespace = 'stile'::regnamespace and f.proname = 'granted'
          and a.grantee <> f.proowner
    loop
        execute g.statement;
    end loop;
end $$;

commit;
begin;

-- Deletes names that were not held for this long, and expired claims. Their tokens are not
-- repeated.
create or replace function stile.cleanup(p_unused_for interval default '30 days')
returns bigint language plpgsql
set search_path = pg_catalog, pg_temp as $$
declare
    v_removed bigint;
begin
    lock table stile.lock, stile.counter, stile.claim in share row exclusive mode;
    delete from stile.job_idle i
    where pg_try_advisory_xact_lock_shared(stile.job_mark(i.backend, i.queue));
    delete from stile.last_holder h
    where h.stored_on < (clock_timestamp() at time zone 'utc' - p_unused_for)::date;
    perform stile.table_settle(c.name) from (select distinct name from stile.claim) c;
    with old as (
        delete from stile.lock l
        where l.since < clock_timestamp() - p_unused_for and l.delay_ms is null
          and (l.hold_until is null or l.hold_until < clock_timestamp())
          and not exists (
              select from pg_locks p
              where p.locktype = 'advisory' and p.objsubid = l.sub
                and (p.classid::bigint << 32 | p.objid::bigint) = l.key)
        returning l.token
    ), rows as (
        delete from stile.row_lock r
        where r.name in (select f.name from stile.row_lock f for update skip locked)
          and not exists (select from stile.lock l where l.name = E'\x02' || r.name
                          and l.since >= clock_timestamp() - p_unused_for)
    ), idle as (
        delete from stile.counter n
        where not exists (select from stile.claim c where c.name = n.name)
        returning n.token
    ), gone as (
        select token from old union all select token from idle
    ), highest as (
        select max(token) as token, count(*) as n from gone
    )
    update stile.floor f set token = greatest(f.token, h.token) from highest h
    returning h.n into v_removed;
    return v_removed;
end $$;

commit;
begin;

-- For your own transactions: the same lock as `stile run NAME`, released at the end of the
-- transaction.
create or replace function stile.lock(name text) returns void language sql
set search_path = pg_catalog, pg_temp as
    $$ select pg_advisory_xact_lock(hashtextextended(name, 0)) $$;
create or replace function stile.lock_shared(name text) returns void language sql
set search_path = pg_catalog, pg_temp as
    $$ select pg_advisory_xact_lock_shared(hashtextextended(name, 0)) $$;
create or replace function stile.try_lock(name text) returns boolean language sql
set search_path = pg_catalog, pg_temp as
    $$ select pg_try_advisory_xact_lock(hashtextextended(name, 0)) $$;

commit;
begin;

-- All holders, to be read with psql. A lock without expires_at ends with its session.
do $$ begin
    if to_regclass('stile.locks') is null then
        create or replace view stile.locks as
    select ltrim(l.name, E'\x02') as name, l.owner, l.host, l.pid, l.since,
           case when p.pid is null then l.hold_until end as expires_at,
           l.token, p.pid as backend, l.command
    from stile.lock l
    left join pg_locks p on p.locktype = 'advisory' and p.granted and p.objsubid = l.sub
         and (p.classid::bigint << 32 | p.objid::bigint) = l.key and p.pid = l.backend
         and p.database = (select oid from pg_database where datname = current_database())
    where p.pid is not null or l.hold_until > clock_timestamp()
    union all
    select c.name, c.owner, c.host, c.pid, c.since, c.expires_at, c.token, null, c.command
    from stile.claim c where c.held and c.expires_at > clock_timestamp();
    end if;
end $$;

commit;
begin;

-- ---- jobs ----

-- One row per job that is not done. Ready: it may be claimed from run_at on. Claimed: it belongs to
-- its worker until claimed_until, and may be claimed by another from then on. Dead: it failed too
-- often. A token is the job's number and the count of its claims: 17000003 is the third claim of
-- job 17.
create table if not exists stile.job (
    id bigint generated always as identity primary key,
    queue text collate "C" not null,
    key text collate "C",
    state text not null check (state in ('ready', 'claimed', 'dead')),
    tries integer not null default 0,
    run_at timestamptz not null,
    claimed_until timestamptz,
    worker text,
    host text,
    pid integer,
    token bigint not null default 0,
    last_error text,
    added_at timestamptz not null,
    payload bytea not null,
    check ((state = 'claimed') = (claimed_until is not null)),
    check (token < (id + 1) * 1000000)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
comment on table stile.job is 'stile jobs: add to it with stile.job_add(), in your own transaction';
do $$ begin
    if to_regclass('stile.job_due') is null then
        create index job_due on stile.job (queue, coalesce(claimed_until, run_at), id)
        where state <> 'dead';
    end if;
end $$;
do $$ begin
    if to_regclass('stile.job_dead') is null then
        create index job_dead on stile.job (queue, id) where state = 'dead';
    end if;
end $$;
-- Unique while the job waits: an event during its run needs another job.
do $$ begin
    if to_regclass('stile.job_queued_key') is null then
        create unique index job_queued_key on stile.job (queue, key)
        where key is not null and state = 'ready' and token = 0;
    end if;
    if to_regclass('stile.job_key') is not null then
        drop index stile.job_key;
    end if;
end $$;

commit;
begin;

-- Whatever the role's defaults are: a crash must not forget a claim that was answered.
create or replace function stile.job_durably() returns void language plpgsql
set search_path = pg_catalog, pg_temp as $$
begin
    if current_setting('synchronous_commit') in ('off', 'local', 'remote_write') then
        perform set_config('synchronous_commit', 'on', true);
    end if;
end $$;

-- Waiting workers: a row for each client and queue, which counts as long as its session has the
-- lock of its mark. (A channel that several share is that of older libraries: any of their sessions
-- counts.)
create unlogged table if not exists stile.job_idle (
    queue text collate "C" not null,
    channel text not null,
    backend integer not null default pg_backend_pid(),
    since timestamptz not null default clock_timestamp(),
    seen bigint,                            -- transactions from this one on have seen the row
    settled boolean not null default false, -- there are none before it that may have added
    primary key (queue, channel)
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500);

create or replace function stile.job_mark(p_backend integer, p_queue text) returns bigint
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select hashtextextended('stile idles ' || p_backend || ' ' || p_queue, 0)
$$;

-- A job was added to the queue: wakes some waiting workers at the end of this transaction; without
-- any, nothing is notified. It runs in the caller's own transaction, and only reads. A snapshot
-- from the beginning of the transaction cannot show which workers wait now: then all are woken.
create or replace function stile.job_wake(p_queue text, p_most integer default 2) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_left integer := p_most;
    i record;
begin
    if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted')
       or not has_table_privilege('stile.job_idle', 'select') then
        perform pg_notify('stile_job', 'j ' || p_queue);
        return;
    end if;
    for i in select w.channel, w.backend from stile.job_idle w where w.queue = p_queue
             order by random() loop
        if not pg_try_advisory_xact_lock_shared(stile.job_mark(i.backend, p_queue)) then
            perform pg_notify(i.channel, 'j ' || p_queue);
            v_left := v_left - 1;
            exit when v_left = 0;
        end if;
    end loop;
end $$;

-- Whether a transaction from before p_seen may have added a job without having seen a worker's row.
create or replace function stile.job_adding(p_seen bigint) returns boolean language sql
set search_path = pg_catalog, pg_temp as $$
    with locks as materialized (select * from pg_locks)
    select exists (
        select from locks l
        join locks x on x.virtualtransaction = l.virtualtransaction
             and x.locktype = 'transactionid' and x.mode = 'ExclusiveLock' and x.granted
        where l.locktype = 'relation' and l.relation = 'stile.job'::regclass
          and l.database = (select oid from pg_database where datname = current_database())
          and l.mode = 'RowExclusiveLock' and l.pid is distinct from pg_backend_pid()
          and age(x.transactionid)
              >= txid_snapshot_xmax(txid_current_snapshot()) - p_seen - 1)
$$;

-- A worker has found nothing and will wait. Returns in how many ms it has to look again, because a
-- job may have been added without a notification: first its row is written, then it looks once more
-- after all transactions that have not seen the row are over. null: every new job will be notified.
create or replace function stile.job_rest(p_queue text, p_channel text) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_row stile.job_idle;
begin
    select * into v_row from stile.job_idle i where i.queue = p_queue and i.channel = p_channel;
    if v_row.backend is null
       or v_row.backend <> pg_backend_pid()
       and (p_channel <> 'stile_job'
            or pg_try_advisory_xact_lock_shared(stile.job_mark(v_row.backend, p_queue))) then
        delete from stile.job_idle i where i.queue = p_queue and i.backend <> pg_backend_pid()
        and pg_try_advisory_xact_lock_shared(stile.job_mark(i.backend, p_queue));
        insert into stile.job_idle as i (queue, channel) values (p_queue, p_channel)
        on conflict (queue, channel) do update
        set backend = excluded.backend, since = excluded.since, seen = null, settled = false;
        perform pg_try_advisory_lock(stile.job_mark(pg_backend_pid(), p_queue));
        return 1;
    end if;
    if v_row.settled then
        return null;
    end if;
    v_row.seen := coalesce(v_row.seen, txid_snapshot_xmax(txid_current_snapshot()));
    v_row.settled := not stile.job_adding(v_row.seen);
    update stile.job_idle i set seen = v_row.seen, settled = v_row.settled
    where i.queue = p_queue and i.channel = p_channel;
    return case when v_row.settled then 1
           else least(1000, greatest(20, extract(epoch from clock_timestamp() - v_row.since) * 1000))
           end::bigint;
end $$;

-- The client no longer waits: a notification that it has got, or will get, is passed on to another.
create or replace function stile.job_leave(p_queue text, p_channel text) returns void
language plpgsql set lock_timeout = '3s' set enable_seqscan = off
set search_path = pg_catalog, pg_temp as $$
begin
    delete from stile.job_idle i
    where i.queue = p_queue and i.channel = p_channel and i.backend = pg_backend_pid();
    if found then
        perform pg_advisory_unlock(stile.job_mark(pg_backend_pid(), p_queue));
    end if;
    if exists (select from stile.job j where j.queue = p_queue and j.state <> 'dead'
               and coalesce(j.claimed_until, j.run_at) <= clock_timestamp()) then
        perform stile.job_wake(p_queue, 1);
    end if;
end $$;

-- Returns the job's number, or that of the waiting job with this key that was never claimed.
create or replace function stile.job_add(
    p_queue text, p_payload bytea, p_key text default null, p_delay_ms bigint default 0
) returns bigint language plpgsql
set search_path = pg_catalog, pg_temp as $$
declare
    v_now timestamptz := clock_timestamp();
    v_id bigint;
begin
    if octet_length(p_payload) > 1048576 then
        raise 'a job''s payload has 1 MiB at most' using errcode = '54000';
    end if;
    loop
        insert into stile.job (queue, key, state, run_at, added_at, payload)
        values (p_queue, p_key, 'ready', v_now + p_delay_ms * interval '1 ms', v_now, p_payload)
        on conflict (queue, key) where key is not null and state = 'ready' and token = 0 do nothing
        returning id into v_id;
        if found then
            perform stile.job_wake(p_queue);
            return v_id;
        end if;
        select id into v_id from stile.job
        where queue = p_queue and key = p_key and state = 'ready' and token = 0;
        if found then
            return v_id;
        end if;
    end loop;
end $$;

-- Claims due jobs, the longest due first; jobs that were tried too often become dead instead. If
-- there is none, one row says how long it is until the next one is due. Finished jobs are acked
-- first, and returned in rows with a token and no number. The plans are fixed: a table that was
-- empty when it was last analysed must not be read from end to end. A worker that will wait names
-- the channel on which it listens, any other ''. null: it does not know of channels, and listens
-- for all jobs, or not at all.
do $$ begin
    if to_regprocedure('stile.job_claim(text, integer, bigint, integer, text, text, integer, bigint[])')
       is not null then
        drop function stile.job_claim(text, integer, bigint, integer, text, text, integer, bigint[]);
    end if;
end $$;
create or replace function stile.job_claim(
    p_queue text, p_max integer, p_lease_ms bigint, p_tries integer,
    p_worker text, p_host text, p_pid integer, p_done bigint[] default null,
    p_channel text default null
) returns table (id bigint, token bigint, tries integer, key text, payload bytea, last_error text,
                 age_ms bigint, due_ms bigint)
language plpgsql set lock_timeout = '3s' set enable_seqscan = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    v_now timestamptz := clock_timestamp();
    v_ids bigint[];
    v_due bigint;
begin
    if current_setting('synchronous_commit') in ('off', 'local', 'remote_write') then
        perform stile.job_durably();
    end if;
    if p_done is not null then
        v_ids := array(select t / 1000000 from unnest(p_done) t order by t);
        return query delete from stile.job j
        where j.id = any (v_ids) and j.token = any (p_done) and j.state = 'claimed'
        returning null::bigint, j.token, null::int, null::text, null::bytea, null::text,
                  null::bigint, null::bigint;
    end if;
    return query with taken as (
        update stile.job j
        set state = case when j.tries >= p_tries or j.token % 1000000 = 999999 then 'dead'
                    else 'claimed' end,
            claimed_until = case when j.tries >= p_tries or j.token % 1000000 = 999999 then null
                            else v_now + p_lease_ms * interval '1 ms' end,
            token = case when j.tries >= p_tries or j.token % 1000000 = 999999 then j.token
                    else greatest(j.token, j.id * 1000000) + 1 end,
            tries = case when j.tries >= p_tries or j.token % 1000000 = 999999 then j.tries
                    else j.tries + 1 end,
            last_error = case when j.state = 'claimed'
                         then 'its worker ' || j.pid || ' on ' || j.host || ' was not heard of'
                         else j.last_error end,
            worker = p_worker, host = p_host, pid = p_pid
        where j.id = any (array(
            select d.id from stile.job d
            where d.queue = p_queue and d.state <> 'dead'
              and coalesce(d.claimed_until, d.run_at) <= v_now
            order by coalesce(d.claimed_until, d.run_at), d.id
            limit p_max for update skip locked))
        returning j.*
    )
    select t.id, t.token, t.tries, t.key, t.payload, t.last_error,
           (extract(epoch from v_now - t.added_at) * 1000)::bigint, null::bigint
    from taken t where t.state = 'claimed' order by t.run_at, t.id;
    if found then
        return;
    end if;
    select ceil(extract(epoch from coalesce(j.claimed_until, j.run_at) - v_now) * 1000) into v_due
    from stile.job j where j.queue = p_queue and j.state <> 'dead'
    order by coalesce(j.claimed_until, j.run_at) limit 1;
    if p_channel is null and exists (select from pg_listening_channels() c where c = 'stile_job') then
        p_channel := 'stile_job';
    end if;
    if p_channel <> '' and has_table_privilege('stile.job_idle', 'select')
       and has_table_privilege('stile.job_idle', 'insert')
       and has_table_privilege('stile.job_idle', 'update')
       and has_table_privilege('stile.job_idle', 'delete') then
        v_due := least(v_due, stile.job_rest(p_queue, p_channel));
    end if;
    if v_due is not null then
        return query select null::bigint, null::bigint, null::int, null::text, null::bytea,
                            null::text, null::bigint, v_due;
    end if;
end $$;

-- Returns the tokens that belong to the last claims of their jobs; the others change nothing.
create or replace function stile.job_ack(p_tokens bigint[]) returns setof bigint
language plpgsql set lock_timeout = '3s' set enable_seqscan = off
set plan_cache_mode = force_generic_plan
set search_path = pg_catalog, pg_temp as $$
declare
    v_ids bigint[] := array(select t / 1000000 from unnest(p_tokens) t order by t);
begin
    if current_setting('synchronous_commit') in ('off', 'local', 'remote_write') then
        perform stile.job_durably();
    end if;
    return query delete from stile.job j
    where j.id = any (v_ids) and j.token = any (p_tokens)
      and j.state = 'claimed'
    returning j.token;
end $$;

create or replace function stile.job_extend(p_tokens bigint[], p_lease_ms bigint)
returns setof bigint language plpgsql set lock_timeout = '3s' set enable_seqscan = off
set plan_cache_mode = force_generic_plan
set search_path = pg_catalog, pg_temp as $$
declare
    v_ids bigint[] := array(select t / 1000000 from unnest(p_tokens) t order by t);
begin
    perform stile.job_durably();
    return query update stile.job j
    set claimed_until = clock_timestamp() + p_lease_ms * interval '1 ms'
    where j.id = any (v_ids) and j.token = any (p_tokens)
      and j.state = 'claimed'
    returning j.token;
end $$;

create or replace function stile.job_fail(
    p_tokens bigint[], p_delays bigint[], p_dead boolean[], p_error text
) returns setof bigint language plpgsql set lock_timeout = '3s' set enable_seqscan = off
set plan_cache_mode = force_generic_plan
set search_path = pg_catalog, pg_temp as $$
declare
    v_ids bigint[] := array(select t / 1000000 from unnest(p_tokens) t order by t);
    f record;
begin
    perform stile.job_durably();
    for f in
        update stile.job j
        set state = case when p_dead[array_position(p_tokens, j.token)] then 'dead' else 'ready' end,
            run_at = clock_timestamp()
                     + p_delays[array_position(p_tokens, j.token)] * interval '1 ms',
            claimed_until = null, last_error = p_error
        where j.id = any (v_ids) and j.token = any (p_tokens)
          and j.state = 'claimed'
        returning j.token, j.queue, j.state
    loop
        if f.state = 'ready' then
            perform stile.job_wake(f.queue);
        end if;
        return next f.token;
    end loop;
end $$;

-- As if the jobs had not been claimed, except for their tokens.
create or replace function stile.job_give_back(p_tokens bigint[]) returns setof bigint
language plpgsql set lock_timeout = '3s' set enable_seqscan = off
set plan_cache_mode = force_generic_plan
set search_path = pg_catalog, pg_temp as $$
declare
    v_ids bigint[] := array(select t / 1000000 from unnest(p_tokens) t order by t);
    f record;
begin
    for f in
        update stile.job j set state = 'ready', claimed_until = null, tries = j.tries - 1
        where j.id = any (v_ids) and j.token = any (p_tokens)
          and j.state = 'claimed'
        returning j.token, j.queue
    loop
        perform stile.job_wake(f.queue);
        return next f.token;
    end loop;
end $$;

-- Makes dead jobs ready again (number 0: all of the queue), one of each key. They get new numbers:
-- a token begins with its job's number, and must be larger than those of later jobs with the same
-- key. Returns how many.
create or replace function stile.job_retry(p_queue text, p_id bigint) returns bigint
language plpgsql set lock_timeout = '3s'
set search_path = pg_catalog, pg_temp as $$
declare
    v_n bigint;
begin
    update stile.job j
    set id = default, token = 0, state = 'ready', tries = 0, run_at = clock_timestamp()
    where j.queue = p_queue and j.state = 'dead' and p_id in (0, j.id)
      and (j.key is null or not exists (
               select from stile.job o where o.queue = j.queue and o.key = j.key
               and (o.state = 'ready' and o.token = 0
                    or p_id = 0 and o.state = 'dead' and o.id < j.id)));
    get diagnostics v_n = row_count;
    for i in 1 .. least(v_n, 100) loop
        perform stile.job_wake(p_queue);
    end loop;
    return v_n;
end $$;

create or replace function stile.job_drop(p_queue text, p_id bigint) returns bigint
language plpgsql set lock_timeout = '3s'
set search_path = pg_catalog, pg_temp as $$
declare
    v_n bigint;
begin
    delete from stile.job where queue = p_queue and id = p_id and state <> 'claimed';
    get diagnostics v_n = row_count;
    return v_n;
end $$;

commit;
begin;

-- Grants what a version has added to the roles that may use the rest: a role that worked before
-- `stile setup` works after it. This is done once, in the step that sets the new version:
-- privileges that are revoked later stay revoked. (The sequence of an identity column needs no
-- privileges.)
do $$
declare
    g record;
begin
    if exists (select from stile.version where version = 3) then
        return;
    end if;
    for g in
        select format('grant %s on %s to %s%s', a.privilege_type, n.added,
                      coalesce(quote_ident(r.rolname), 'public'),
                      case when a.is_grantable then ' with grant option' else '' end) as statement
        from (values ('stile.waiting', 'stile.lock'), ('stile.job_idle', 'stile.job')) n (added, beside)
        join pg_class c on c.oid = to_regclass(n.beside)
        cross join lateral aclexplode(c.relacl) a
        left join pg_roles r on r.oid = a.grantee
        where a.grantee <> c.relowner
        union all
        select format('grant execute on function %s to %s%s', f.oid::regprocedure,
                      coalesce(quote_ident(r.rolname), 'public'),
                      case when a.is_grantable then ' with grant option' else '' end)
        from pg_proc f
        join pg_proc b on b.pronamespace = f.pronamespace
             and b.proname = case when f.proname like 'job%' then 'job_add' else 'granted' end
        cross join lateral aclexplode(coalesce(b.proacl, acldefault('f', b.proowner))) a
        left join pg_roles r on r.oid = a.grantee
        where f.pronamespace = 'stile'::regnamespace and a.grantee <> b.proowner
          and f.proname in ('durably', 'mark', 'briefly', 'park', 'unpark', 'ahead', 'wake', 'grant',
                            'job_mark', 'job_wake', 'job_adding', 'job_rest', 'job_leave', 'job_claim')
    loop
        execute g.statement;
    end loop;
end $$;

insert into stile.version (version) values (2), (3) on conflict do nothing;
commit;
begin;

-- Grants without a row begin when no call of an older function is under way: it would count in a row, or
-- write a hold without raising stile.changes. Waits inside the server end within a second. A holder of
-- mode=row keeps its transaction open, but calls nothing in it.
do $$
declare
    v_calls text[] := array(
        select l.pid || ' ' || l.virtualtransaction
        from pg_locks l join pg_stat_activity a on a.pid = l.pid
        where l.locktype = 'virtualxid' and l.granted and l.pid <> pg_backend_pid()
          and a.datname = current_database() and a.application_name like 'stile%'
          and not exists (select from pg_locks r where r.pid = l.pid
                          and r.relation = 'stile.row_lock'::regclass));
begin
    for i in 1 .. 500 loop
        if to_regprocedure('stile.draw(bigint)') is not null
           or not exists (select from pg_locks l where l.locktype = 'virtualxid' and l.granted
                          and l.pid || ' ' || l.virtualtransaction = any (v_calls)) then
            return;
        end if;
        perform pg_sleep(0.01);
    end loop;
    raise 'a stile client has had a transaction open for five seconds, from before its functions were replaced'
        using hint = 'Run this again when it has ended.';
end $$;

-- The caller's session has the advisory lock p_key, and asks for a token without a row: if the counter may be
-- believed, and nothing is known about the name that would make the caller wait. Returns the token, what
-- stile.changes was before that was looked up, and where the epoch ends; "-": stile.grant() decides. As long
-- as stile.changes stays the same the caller need not look again.
create or replace function stile.draw(p_key bigint) returns text language plpgsql
set search_path = pg_catalog, pg_temp as $$
declare
    -- A crash forgets it; null would never be the same.
    v_changes bigint := coalesce(pg_sequence_last_value('stile.changes'), nextval('stile.changes'));
    v_token bigint;
    v_ends bigint;
begin
    select nextval('stile.tokens'), f.ends into v_token, v_ends from stile.life f
    where f.made_by = f.xmin and f.started = pg_postmaster_start_time()
      and f.file = pg_relation_filepath('stile.life')
      and not exists (select from stile.lock r where r.key = p_key and r.sub = 1
                      and (r.hold_until is not null or r.delay_ms is not null
                           or r.token > pg_sequence_last_value('stile.tokens')))
      and not exists (select from stile.waiting w where w.key = p_key and w.sub = 1)
      and exists (select from pg_proc p where p.oid = 'stile.granted'::regproc
                  and p.prosrc like '%stile.changes%');
    if v_ends - v_token between 1 and 1048576 then
        return concat(v_token, ' ', v_changes, ' ', v_ends);
    end if;
    return '-';
end $$;

do $$
declare
    g record;
begin
    for g in
        select format('grant execute on function %s to %s%s', n.oid::regprocedure,
                      coalesce(quote_ident(r.rolname), 'public'),
                      case when a.is_grantable then ' with grant option' else '' end) as statement
        from pg_proc f
        cross join lateral aclexplode(coalesce(f.proacl, acldefault('f', f.proowner))) a
        join pg_proc n on n.pronamespace = f.pronamespace
             and n.proname in ('draw', 'describe', 'undescribe') and n.proacl is null
        left join pg_roles r on r.oid = a.grantee
        where f.pronamespace = 'stile'::regnamespace and f.proname = 'granted'
          and a.grantee <> f.proowner and f.proacl is not null
    loop
        execute g.statement;
    end loop;
end $$;
commit;
select pg_advisory_unlock(hashtextextended('stile setup', 0));
