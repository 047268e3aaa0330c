-- The schema of stile. Each part is safe to be run again; an older version is brought up to date.
-- Run it as the role that will use it, or grant that role USAGE on the schema and ALL on its tables.

begin read write;
set local lock_timeout = 0;
set local statement_timeout = 0;
select pg_advisory_xact_lock(hashtextextended('stile setup', 0));

create schema if not exists stile;
comment on schema stile is 'locks with fencing tokens: stile setup';

create table if not exists stile.version (version integer primary key);
do $$ begin
    if exists (select from stile.version where version > 1) then
        raise 'the schema stile is newer than this version of stile knows: install a newer one';
    end if;
end $$;

-- One row a name: its counter, and who has it or had it last. Whether it is held right now is in
-- pg_locks, and in the view stile.locks.
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

create index if not exists lock_by_key on stile.lock (key, sub);
create index if not exists lock_kept_back on stile.lock (name)
    where hold_until is not null or delay_ms is not null;

-- Tokens of names whose rows were cleared away are below this, so that none ever comes back.
create table if not exists stile.floor (
    one boolean primary key default true check (one),
    token bigint not null
);
insert into stile.floor (token) values (0) on conflict do nothing;

-- The advisory lock is the caller's session's: count it, unless the name is kept back.
create or replace function stile.granted(
    p_name text, p_key bigint, p_sub smallint, p_shared boolean, p_hold_ms bigint,
    p_delay_ms bigint, p_owner text, p_host text, p_pid integer, p_command text
) returns text language plpgsql as $$
declare
    v_now timestamptz := clock_timestamp();
    v_token bigint;
    v_left bigint;
begin
    for i in 1 .. 2 loop
        update stile.lock l
        set token = l.token + 1, shared = p_shared, owner = p_owner, host = p_host, pid = p_pid,
            command = p_command, since = v_now, backend = pg_backend_pid(),
            hold_until = greatest(v_now + p_hold_ms * interval '1 ms',
                                  case when p_shared and l.shared then l.hold_until end),
            delay_ms = p_delay_ms
        where l.name = p_name
          and (p_shared and l.shared
               or l.delay_ms is null and (l.hold_until is null or l.hold_until <= v_now))
        returning l.token into v_token;
        if found then
            return 'g ' || v_token;
        end if;
        insert into stile.lock as l (name, token, key, sub, shared, owner, host, pid, command,
                                     since, backend, hold_until, delay_ms)
        select p_name, f.token + 1, p_key, p_sub, p_shared, p_owner, p_host, p_pid, p_command,
               v_now, pg_backend_pid(), v_now + p_hold_ms * interval '1 ms', p_delay_ms
        from stile.floor f
        on conflict (name) do nothing
        returning l.token into v_token;
        if found then
            return 'g ' || v_token;
        end if;
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
    return 'h 1';
end $$;

-- Before the advisory lock is given back, where a hold or a delay came with it.
create or replace function stile.let_go(p_name text, p_token bigint, p_unused boolean)
returns void language sql as $$
    update stile.lock
    set backend = null, delay_ms = null,
        hold_until = case when not p_unused then hold_until end
    where name = p_name and (token = p_token or shared)
$$;

-- stile break: what keeps a name back, does so no longer.
create or replace function stile.unhold(p_name text, p_token bigint)
returns boolean language plpgsql as $$
begin
    update stile.lock set hold_until = null, delay_ms = null
    where name = p_name and p_token in (0, token)
      and (hold_until is not null or delay_ms is not null);
    return found;
end $$;

-- Clears away names that nobody has had for so long. Their tokens stay used.
create or replace function stile.cleanup(p_unused_for interval default '30 days')
returns bigint language plpgsql as $$
declare
    v_removed bigint;
begin
    lock table stile.lock in share row exclusive mode;
    with gone as (
        delete from stile.lock l
        where l.since < clock_timestamp() - p_unused_for and l.delay_ms is null
          and (l.hold_until is null or l.hold_until < clock_timestamp())
          and not exists (
              select from pg_locks p
              where p.locktype = 'advisory' and p.objsubid = l.sub
                and (p.classid::bigint << 32 | p.objid::bigint) = l.key)
        returning l.token
    ), highest as (select max(token) as token, count(*) as n from gone)
    update stile.floor f set token = greatest(f.token, h.token) from highest h
    returning h.n into v_removed;
    return v_removed;
end $$;

-- For anybody's own transaction: the same lock as `stile run NAME`, given back by its end.
create or replace function stile.lock(name text) returns void language sql as
    $$ select pg_advisory_xact_lock(hashtextextended(name, 0)) $$;
create or replace function stile.lock_shared(name text) returns void language sql as
    $$ select pg_advisory_xact_lock_shared(hashtextextended(name, 0)) $$;
create or replace function stile.try_lock(name text) returns boolean language sql as
    $$ select pg_try_advisory_xact_lock(hashtextextended(name, 0)) $$;

-- Who holds what, for a person with psql. What has no expires_at ends with its session.
create or replace view stile.locks as
select l.name, l.owner, l.host, l.pid, l.since,
       case when p.pid is null then l.hold_until end as expires_at,
       l.token, p.pid as backend, l.command
from stile.lock l
left join pg_locks p on p.locktype = 'advisory' and p.granted and p.objsubid = l.sub
     and (p.classid::bigint << 32 | p.objid::bigint) = l.key and p.pid = l.backend
     and p.database = (select oid from pg_database where datname = current_database())
where p.pid is not null or l.hold_until > clock_timestamp();

insert into stile.version (version) values (1) on conflict do nothing;
commit;
