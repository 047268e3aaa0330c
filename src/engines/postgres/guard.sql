-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- Guards for PostgreSQL: refuse the writes of a holder whose lock has passed to another.
--
--     begin; select stile.guard('accounts', 34);          first in the transaction, in one message
--     update account set ...;                             any tables, any statements
--     commit;
--
--     begin; call stile.fence('accounts', 34, 'redis:accounts');      the same, and a little faster
--
-- The guard remembers, for each resource, the highest token that it has seen. A smaller one is
-- refused with SQLSTATE SG001, one from another issuer with SG002. The caller keeps a lock on the
-- resource until its transaction ends, so a larger token passes only after the writes of smaller
-- ones are committed or gone. Transactions with the same token do not wait for each other.
--
-- This file needs nothing else of stile and is safe to run again. Roles that write need
--     grant usage on schema stile to app;
--     grant execute on function stile.guard to app;
--     grant execute on procedure stile.fence to app;
-- and nothing on the tables, with which they could lower a token: the functions run with the rights
-- of their owner. They are not for public, as any caller could lock out all others with a high token.

begin read write;
set local search_path = pg_catalog, pg_temp;
set local lock_timeout = '5s';
set local statement_timeout = 0;
select pg_advisory_xact_lock(hashtextextended('stile setup', 0));

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

-- One row, which every change of guard_floor updates. pruned_version: the largest of the rows that
-- guard_prune() has deleted, so that no version comes back.
create table if not exists stile.guard_state (
    one boolean primary key default true check (one),
    version integer not null,
    pruned_version bigint not null default 0,
    pruned_at timestamptz
);
do $$ begin
    if exists (select from stile.guard_state where version > 2) then
        raise 'the guards here are newer than this version of stile knows: install a newer one';
    end if;
end $$;
insert into stile.guard_state as s (version) values (2)
on conflict (one) do update set version = 2 where s.version < 2;

-- token 0: none was seen yet. value: that of the cell with this key, null: there is none. A resource
-- that was removed keeps its token, and its version. ends_at, of a cell with an end: from then on the
-- row counts as absent, and some later cell_keep() deletes it.
create table if not exists stile.guarded (
    resource text collate "C" primary key,
    token bigint not null check (token >= 0),
    issuer text collate "C" not null,
    version bigint not null,
    value bytea,
    changed_at timestamptz not null,
    removed_at timestamptz,
    ends_at timestamptz
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
do $$ begin
    if to_regclass('stile.guarded_ends') is null then
        alter table stile.guarded add column if not exists ends_at timestamptz;
        create index guarded_ends on stile.guarded (ends_at) where ends_at is not null;
    end if;
end $$;

-- The highest token of each issuer among the rows that guard_prune() has deleted.
create table if not exists stile.guard_floor (
    issuer text collate "C" primary key,
    token bigint not null
);

-- A row as it counts. One that has ended has only its version left, and no changed_at.
create or replace function stile.guard_alive(p_row stile.guarded) returns stile.guarded
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if p_row.ends_at <= clock_timestamp() then
        p_row.token := 0;
        p_row.issuer := '';
        p_row.value := null;
        p_row.changed_at := null;
        p_row.removed_at := null;
        p_row.ends_at := null;
    end if;
    return p_row;
end $$;

-- ---- the rule ----

-- null: the token passes. Otherwise the SQLSTATE of the refusal. Token 0: the writer has none.
create or replace function stile.guard_judge(
    p_token bigint, p_issuer text, p_strict boolean, p_highest bigint, p_from text
) returns text language sql immutable
set search_path = pg_catalog, pg_temp as $$
    select case when p_token > 0 and p_issuer <> '' and p_from <> '' and p_issuer <> p_from then 'SG002'
           when p_token < p_highest or p_strict and p_token > 0 and p_token = p_highest then 'SG001'
           end
$$;

create or replace function stile.guard_refuse(
    p_resource text, p_token bigint, p_issuer text, p_strict boolean, p_highest bigint, p_from text
) returns void language plpgsql
set search_path = pg_catalog, pg_temp as $$
declare
    v_state text := stile.guard_judge(p_token, p_issuer, p_strict, p_highest, p_from);
begin
    if v_state = 'SG002' then
        raise exception using errcode = v_state,
            message = format('token of %s for %s, whose tokens come from %s', p_issuer, p_resource,
                             p_from),
            detail = format('highest=%s issuer=%s', p_highest, p_from),
            hint = 'After a move to other locks, stile.guard_reset() accepts their tokens.';
    elsif v_state is not null then
        raise exception using errcode = v_state,
            message = format('stale token %s for %s: the highest seen is %s', p_token, p_resource,
                             p_highest),
            detail = format('highest=%s issuer=%s', p_highest, p_from),
            hint = 'The lock has passed to another holder. Stop, or acquire it again.';
    end if;
end $$;

create or replace function stile.guard_check_names(p_resource text, p_issuer text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if p_resource is null or p_resource = '' or octet_length(p_resource) > 512
       or p_resource ~ '[\x01-\x1f\x7f]' then
        raise exception using errcode = 'SG004',
            message = 'a resource''s name has 1 to 512 bytes, without control characters';
    end if;
    if octet_length(p_issuer) > 600 or p_issuer ~ '[\x01-\x1f\x7f]' then
        raise exception using errcode = 'SG004',
            message = 'an issuer''s name has at most 600 bytes, without control characters';
    end if;
end $$;

-- What counts as the highest token of a resource: where none was seen, that of the rows that were
-- pruned. A token without an issuer may come from any. The row of guard_state is locked, so that no
-- prune adds to the floors meanwhile; if one has, since this transaction's snapshot, the lock fails.
create or replace function stile.guard_highest(p_seen stile.guarded, p_token bigint, p_issuer text)
returns bigint language plpgsql
set search_path = pg_catalog, pg_temp as $$
begin
    if p_seen.token > 0 or p_seen.token = p_token then
        return p_seen.token;
    end if;
    perform from stile.guard_state for share;
    return (select coalesce(max(f.token), 0) from stile.guard_floor f
            where p_token > 0 and p_issuer in ('', f.issuer));
end $$;

-- Whether a token that passes changes the row.
create or replace function stile.guard_changes(p_seen stile.guarded, p_token bigint, p_issuer text)
returns boolean language sql immutable
set search_path = pg_catalog, pg_temp as $$
    select p_seen.resource is null or p_seen.token < p_token or p_seen.removed_at is not null
           or p_seen.issuer = '' and p_issuer <> ''
$$;

-- ---- passing ----

-- Waits for its turn. Writers have an advisory lock, shared or alone, beside that of the row: a
-- stream of row locks that overlap would keep a larger token out for ever, and this lock has a fair
-- queue. A snapshot that is older than the wait lacks what the others have written meanwhile: a new
-- holder would work on old data.
create or replace function stile.guard_enter(p_resource text, p_alone boolean) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if not p_alone then
        perform pg_advisory_xact_lock_shared(hashtextextended(p_resource, 7350));
    elsif not pg_try_advisory_xact_lock(hashtextextended(p_resource, 7350)) then
        perform pg_advisory_xact_lock(hashtextextended(p_resource, 7350));
        if current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
            raise exception using errcode = '40001',
                message = format('%s was written while this transaction waited', p_resource),
                hint = 'The transaction might succeed if retried.';
        end if;
    end if;
end $$;

-- The row as it is now. Where a transaction's snapshot has an older one, the lock fails.
create or replace function stile.guard_lock(p_resource text, p_alone boolean)
returns stile.guarded language plpgsql
set search_path = pg_catalog, pg_temp as $$
declare
    v_row stile.guarded;
begin
    if p_alone then
        select * into v_row from stile.guarded g where g.resource = p_resource for no key update;
    else
        select * into v_row from stile.guarded g where g.resource = p_resource for share;
    end if;
    return stile.guard_alive(v_row);
end $$;

-- A crash must not forget a token that has passed, whatever the role's defaults are.
create or replace function stile.guard_durably() returns void language plpgsql
set search_path = pg_catalog, pg_temp as $$
begin
    if current_setting('synchronous_commit') in ('off', 'local', 'remote_write') then
        perform set_config('synchronous_commit', 'on', true);
    end if;
end $$;

-- Stores a token that has passed, in a row that is locked or new. False: there is one by now.
create or replace function stile.guard_store(p_seen stile.guarded, p_resource text, p_token bigint,
                                             p_issuer text)
returns boolean language plpgsql
set search_path = pg_catalog, pg_temp as $$
begin
    perform stile.guard_durably();
    if p_seen.resource is null then
        insert into stile.guarded (resource, token, issuer, version, changed_at)
        values (p_resource, p_token, p_issuer, (select pruned_version from stile.guard_state),
                clock_timestamp())
        on conflict (resource) do nothing;
    else
        update stile.guarded g
        set token = p_token, issuer = coalesce(nullif(p_issuer, ''), p_seen.issuer),
            value = case when p_seen.changed_at is not null then g.value end,
            changed_at = clock_timestamp(), removed_at = null, ends_at = p_seen.ends_at
        where g.resource = p_resource;
    end if;
    return found;
end $$;

-- Reads without a lock first, and then takes the one that is needed: two writers that had both locked
-- the row for sharing could not both raise it.
create or replace function stile.guard_pass(
    p_resource text, p_token bigint, p_issuer text, p_strict boolean
) returns void language plpgsql
set search_path = pg_catalog, pg_temp as $$
declare
    v_seen stile.guarded;
    v_alone boolean;
begin
    perform stile.guard_check_names(p_resource, p_issuer);
    loop
        select * into v_seen from stile.guarded g where g.resource = p_resource;
        v_seen := stile.guard_alive(v_seen);
        perform stile.guard_refuse(p_resource, p_token, p_issuer, p_strict, v_seen.token,
                                   v_seen.issuer);
        v_alone := stile.guard_changes(v_seen, p_token, p_issuer);
        perform stile.guard_enter(p_resource, v_alone);
        v_seen := stile.guard_lock(p_resource, v_alone);
        perform stile.guard_refuse(p_resource, p_token, p_issuer, p_strict,
                                   stile.guard_highest(v_seen, p_token, p_issuer), v_seen.issuer);
        exit when v_alone and stile.guard_store(v_seen, p_resource, p_token, p_issuer)
               or not stile.guard_changes(v_seen, p_token, p_issuer);
    end loop;
end $$;

-- What the transaction has passed, for guard_required(): its number, and a line for each token and
-- resource. A savepoint that is rolled back takes its lines with it.
create or replace function stile.guard_note(p_token bigint, p_resource text) returns text
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_noted text := current_setting('stile.guarded', true);
    v_line text := concat(E'\n', p_token, ' ', p_resource, E'\n');
begin
    return set_config('stile.guarded', case
        when starts_with(v_noted, pg_current_xact_id() || E'\n') then replace(v_noted, v_line, '')
        else pg_current_xact_id()::text end || v_line, true);
end $$;

-- stile.guard() and stile.fence() check and remember. They have one body, as either would take longer
-- if it called the other. The usual cases come first, each in one statement: the token is the highest
-- already, or it is larger and no other writer is in its way. (What is null is left to guard_pass().)
-- fence() takes the server about 15 us less: CALL has no plan and no result, and no argument has a
-- default that would be read from the catalog.
do $install$
declare
    v_note constant text := $note$
        case when current_setting('stile.guarded', true) <> '' then stile.guard_note(token, resource)
        else set_config('stile.guarded', concat(pg_current_xact_id(), E'\n', token, ' ', resource,
                                                E'\n'), true) end$note$;
    v_body constant text := $body$
#variable_conflict use_variable
declare
    v_noted text;
begin
    perform %2$s
    from stile.guarded g
    where g.resource = resource and case
        when g.token = token and g.token > 0 and g.removed_at is null and g.ends_at is null
             and (issuer = g.issuer or issuer = '') and not %1$s
        then pg_try_advisory_xact_lock_shared(hashtextextended(resource, 7350)) end
    for share;
    if found then
        return;
    elsif (token >= 1) is not true then
        raise exception using errcode = 'SG004',
            message = 'a token is a number from 1 to 9223372036854775807';
    elsif current_setting('synchronous_commit') <> 'on' then
        perform stile.guard_durably();
    end if;
    update stile.guarded g
    set token = token, changed_at = clock_timestamp()
    where g.resource = resource and case
        when g.token < token and g.token > 0 and g.removed_at is null and g.ends_at is null
             and (issuer = g.issuer or issuer = '')
        then pg_try_advisory_xact_lock(hashtextextended(resource, 7350)) end
    returning %2$s into v_noted;
    if not found then
        perform stile.guard_pass(resource, token, coalesce(issuer, ''), %1$s is true);
        perform stile.guard_note(token, resource);
    end if;
end $body$;
begin
    execute 'create or replace function stile.guard(
                 resource text, token bigint, issuer text default '''', strict boolean default false
             ) returns void language plpgsql security definer
             set search_path = pg_catalog, pg_temp as '
            || quote_literal(format(v_body, 'strict', v_note));
    execute 'create or replace procedure stile.fence(resource text, token bigint, issuer text)
             language plpgsql security definer
             set search_path = pg_catalog, pg_temp as '
            || quote_literal(format(v_body, 'false', v_note));
end $install$;

-- ---- looking and managing ----

create or replace function stile.guard_show(resource text default null)
returns table (name text, token bigint, issuer text, changed_at timestamptz, removed_at timestamptz)
language sql stable security definer
set search_path = pg_catalog, pg_temp as $$
    select g.resource, g.token, g.issuer, g.changed_at, g.removed_at
    from stile.guarded g
    where (guard_show.resource is null or g.resource = guard_show.resource)
      and (g.ends_at is null or g.ends_at > clock_timestamp())
    order by g.resource
$$;

create or replace function stile.guard_set(p_resource text, p_token bigint, p_issuer text)
returns void language plpgsql
set search_path = pg_catalog, pg_temp as $$
begin
    loop
        perform stile.guard_enter(p_resource, true);
        exit when stile.guard_store(stile.guard_lock(p_resource, true), p_resource, p_token, '');
    end loop;
    update stile.guarded g set issuer = p_issuer where g.resource = p_resource;
end $$;

-- Sets the highest token and its issuer, for tokens that start again from a smaller number or come
-- from other locks. 0 and '': as if none had been seen.
create or replace function stile.guard_reset(
    resource text, token bigint default 0, issuer text default ''
) returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp as $$
begin
    perform stile.guard_check_names(guard_reset.resource, guard_reset.issuer);
    if (guard_reset.token >= 0) is not true then
        raise exception using errcode = 'SG004',
            message = 'a token is a number from 1 to 9223372036854775807, or 0 for none';
    end if;
    perform stile.guard_set(guard_reset.resource, guard_reset.token,
                            coalesce(guard_reset.issuer, ''));
end $$;

-- The resource is gone. Its token stays, and refuses smaller ones as before, until guard_prune().
-- False: there is none with this name.
create or replace function stile.guard_remove(resource text) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp as $$
begin
    perform stile.guard_enter(guard_remove.resource, true);
    perform stile.guard_durably();
    update stile.guarded g
    set value = null, removed_at = coalesce(g.removed_at, clock_timestamp())
    where g.resource = guard_remove.resource
      and (g.ends_at is null or g.ends_at > clock_timestamp());
    return found;
end $$;

-- Deletes what was removed before that time, and returns how many. The highest token of each issuer
-- stays: from then on it counts for resources that have seen none. Rows without an issuer stay, as
-- their tokens would count for all.
create or replace function stile.guard_prune(older_than interval) returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp as $$
declare
    v_deleted bigint;
    v_version bigint;
begin
    perform from stile.guard_state for update;
    perform stile.guard_durably();
    with old as (
        select g.resource from stile.guarded g
        where g.removed_at <= clock_timestamp() - older_than and (g.issuer <> '' or g.token = 0)
          and g.ends_at is null
        for update skip locked
    ), gone as (
        delete from stile.guarded g using old o where g.resource = o.resource
        returning g.issuer, g.token, g.version
    ), floors as (
        insert into stile.guard_floor as f (issuer, token)
        select n.issuer, max(n.token) from gone n where n.issuer <> '' group by n.issuer
        on conflict (issuer) do update set token = greatest(f.token, excluded.token)
    )
    select count(*), max(n.version) into v_deleted, v_version from gone n;
    if v_deleted > 0 then
        update stile.guard_state s
        set pruned_version = greatest(s.pruned_version, v_version), pruned_at = clock_timestamp();
    end if;
    return v_deleted;
end $$;

-- ---- tables that refuse writes without a guard ----

-- Each token that the transaction has noted is looked up and locked once more, so that a setting
-- made by hand opens nothing.
create or replace function stile.guard_was_called() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp as $$
declare
    v_noted text[] := string_to_array(current_setting('stile.guarded', true), E'\n');
    v_line text;
begin
    if v_noted[1] = pg_current_xact_id()::text then
        foreach v_line in array v_noted[2:] loop
            perform from stile.guarded g
            where g.token = nullif(split_part(v_line, ' ', 1), '')::bigint
              and g.resource = substr(v_line, position(' ' in v_line) + 1)
              and g.resource = coalesce(tg_argv[0], g.resource)
            for share;
            if found then
                return coalesce(new, old);
            end if;
        end loop;
    end if;
    raise exception using errcode = 'SG003',
        message = format('%s on %I.%I in a transaction that has called no guard%s', tg_op,
                         tg_table_schema, tg_table_name, coalesce(' of ' || tg_argv[0], '')),
        hint = 'Call stile.guard(resource, token) first, in the same transaction.';
end $$;

-- Refuses INSERT, UPDATE, DELETE and TRUNCATE on this table in transactions that have called no
-- guard, or not that of this resource. Its owner drops the triggers to undo it.
create or replace function stile.guard_required(tab regclass, resource text default null)
returns void language plpgsql
set search_path = pg_catalog, pg_temp as $$
declare
    v_argument text := coalesce(quote_literal(guard_required.resource), '');
    v_part regclass;
    v_kind "char" := (select c.relkind from pg_class c where c.oid = tab);
begin
    if v_kind not in ('r', 'p') then
        raise exception using errcode = '42809', message = format('%s is not a table', tab);
    end if;
    execute format('create or replace trigger stile_guard_required before insert or update or '
                   'delete on %s for each %s execute function stile.guard_was_called(%s)', tab,
                   case v_kind when 'p' then 'row' else 'statement' end, v_argument);
    for v_part in select t.relid from pg_partition_tree(tab) t
                  union select tab loop
        execute format('create or replace trigger stile_guard_required_truncate before truncate '
                       'on %s execute function stile.guard_was_called(%s)', v_part, v_argument);
    end loop;
end $$;

-- ---- cells: what `stile cell` and `stile guard` call ----

-- An answer: 0 done, 1 stale, 2 foreign or 3 conflict; then version, token and issuer of the cell as
-- it is now.
create or replace function stile.cell_answer(
    p_outcome integer, p_cell stile.guarded, p_highest bigint
) returns text language sql immutable
set search_path = pg_catalog, pg_temp as $$
    select concat_ws(' ', p_outcome, case when p_cell.value is null then 0 else p_cell.version end,
                     coalesce(p_highest, 0), coalesce(p_cell.issuer, ''))
$$;

-- Why a write is refused; null: it is not. The guard comes first, the version (null: any) second.
create or replace function stile.cell_refusal(
    p_cell stile.guarded, p_version bigint, p_token bigint, p_issuer text, p_strict boolean
) returns text language plpgsql
set search_path = pg_catalog, pg_temp as $$
declare
    v_highest bigint := stile.guard_highest(p_cell, p_token, p_issuer);
    v_state text := stile.guard_judge(p_token, p_issuer, p_strict, v_highest, p_cell.issuer);
    v_version bigint := case when p_cell.value is null then 0 else p_cell.version end;
begin
    if v_state is null and p_version <> v_version then
        return stile.cell_answer(3, p_cell, p_cell.token);
    end if;
    return case v_state when 'SG001' then stile.cell_answer(1, p_cell, v_highest)
           when 'SG002' then stile.cell_answer(2, p_cell, v_highest) end;
end $$;

-- The version of a put. With an end it is at least the time: it must be larger than that of a cell
-- of this name that was deleted. No cell has a million puts in each second, so its versions stay
-- behind the clock.
create or replace function stile.cell_version(p_last bigint, p_now timestamptz, p_keep_ms bigint)
returns bigint language sql immutable
set search_path = pg_catalog, pg_temp as $$
    select greatest(p_last + 1, case when p_keep_ms is not null
                                then (extract(epoch from p_now) * 1000000)::bigint end)
$$;

-- Writes what has passed into a row that is locked or new. null: there is one by now.
drop function if exists stile.cell_store(stile.guarded, text, text, bytea, bigint, text);
create or replace function stile.cell_store(
    p_cell stile.guarded, p_verb text, p_key text, p_value bytea, p_token bigint, p_issuer text,
    p_keep_ms bigint
) returns text language plpgsql
set search_path = pg_catalog, pg_temp as $$
declare
    v_cell stile.guarded := p_cell;
    v_now timestamptz := clock_timestamp();
    v_ends_at timestamptz := v_now + p_keep_ms * interval '1 millisecond';
begin
    if p_verb = 'remove' and p_cell.changed_at is null and p_token = 0 then
        return stile.cell_answer(0, p_cell, 0);
    end if;
    if p_cell.resource is null then
        insert into stile.guarded as g
            (resource, token, issuer, version, value, changed_at, removed_at, ends_at)
        select p_key, p_token, p_issuer,
               case p_verb when 'put' then stile.cell_version(s.pruned_version, v_now, p_keep_ms)
               else s.pruned_version end,
               p_value, v_now, case p_verb when 'remove' then v_now end, v_ends_at
        from stile.guard_state s
        on conflict (resource) do nothing
        returning * into v_cell;
    else
        update stile.guarded g
        set token = p_token, issuer = coalesce(nullif(p_issuer, ''), p_cell.issuer),
            changed_at = v_now,
            version = case p_verb when 'put' then stile.cell_version(g.version, v_now, p_keep_ms)
                      else g.version end,
            value = case when p_verb <> 'raise' then p_value
                    when p_cell.changed_at is not null then g.value end,
            removed_at = case p_verb when 'remove' then v_now end,
            ends_at = case p_verb when 'put' then v_ends_at else p_cell.ends_at end
        where g.resource = p_key
        returning * into v_cell;
    end if;
    return case when found then stile.cell_answer(0, v_cell, p_token) end;
end $$;

-- put, remove or raise.
drop function if exists stile.cell_change(text, text, bytea, bigint, bigint, text, boolean);
create or replace function stile.cell_change(
    p_verb text, p_key text, p_value bytea, p_version bigint, p_token bigint, p_issuer text,
    p_strict boolean, p_keep_ms bigint
) returns text language plpgsql
set search_path = pg_catalog, pg_temp as $$
declare
    v_cell stile.guarded;
    v_alone boolean;
    v_answer text;
begin
    perform set_config('lock_timeout', '2s', true);
    while v_answer is null loop
        select * into v_cell from stile.guarded g where g.resource = p_key;
        v_cell := stile.guard_alive(v_cell);
        v_answer := stile.cell_refusal(v_cell, p_version, p_token, p_issuer, p_strict);
        exit when v_answer is not null;
        v_alone := p_verb <> 'raise' or stile.guard_changes(v_cell, p_token, p_issuer);
        perform stile.guard_enter(p_key, v_alone);
        v_cell := stile.guard_lock(p_key, v_alone);
        v_answer := stile.cell_refusal(v_cell, p_version, p_token, p_issuer, p_strict);
        if v_answer is null and v_alone then
            v_answer := stile.cell_store(v_cell, p_verb, p_key, p_value, p_token, p_issuer, p_keep_ms);
        elsif v_answer is null and not stile.guard_changes(v_cell, p_token, p_issuer) then
            v_answer := stile.cell_answer(0, v_cell, p_token);
        end if;
    end loop;
    return v_answer;
end $$;

-- The usual put in one statement: there is a cell, and no other writer is in its way.
create or replace function stile.cell_write(
    p_verb text, p_key text, p_value bytea, p_version bigint, p_token bigint, p_issuer text,
    p_strict boolean
) returns text language plpgsql security definer
set search_path = pg_catalog, pg_temp as $$
declare
    v_answer text;
begin
    if current_setting('synchronous_commit') <> 'on' then
        perform stile.guard_durably();
    end if;
    update stile.guarded g
    set value = p_value, version = g.version + 1, token = p_token, changed_at = clock_timestamp()
    where g.resource = p_key and case
        when p_verb = 'put' and g.value is not null and g.ends_at is null
             and coalesce(g.version = p_version, true) and (p_token = g.token or p_token > g.token and g.token > 0)
             and p_issuer in ('', g.issuer) and not p_strict
        then pg_try_advisory_xact_lock(hashtextextended(p_key, 7350)) end
    returning '0 ' || g.version || ' ' || g.token || ' ' || g.issuer into v_answer;
    if not found then
        return stile.cell_change(p_verb, p_key, p_value, p_version, p_token, p_issuer, p_strict, null);
    end if;
    return v_answer;
end $$;

-- put, with an end after so many milliseconds. Deletes a few of those whose end is over: more than
-- this puts, so that they do not pile up. Nothing of them stays.
create or replace function stile.cell_keep(
    p_key text, p_value bytea, p_version bigint, p_token bigint, p_issuer text, p_strict boolean,
    p_keep_ms bigint
) returns text language plpgsql security definer
set search_path = pg_catalog, pg_temp as $$
declare
    v_answer text;
begin
    perform stile.guard_durably();
    v_answer := stile.cell_change('put', p_key, p_value, p_version, p_token, p_issuer, p_strict,
                                  p_keep_ms);
    delete from stile.guarded g where g.resource = any (array(
        select o.resource from stile.guarded o
        where o.ends_at <= clock_timestamp() and o.resource <> p_key
        order by o.ends_at limit 4 for update skip locked));
    return v_answer;
end $$;

create or replace function stile.cell_get(p_key text, out answer text, out value bytea)
language sql stable security definer
set search_path = pg_catalog, pg_temp as $$
    select stile.cell_answer(0, g, g.token), g.value
    from (select) one left join stile.guarded g
         on g.resource = p_key and (g.ends_at is null or g.ends_at > clock_timestamp())
$$;

create or replace function stile.cell_reset(p_key text, p_token bigint, p_issuer text) returns text
language plpgsql security definer
set search_path = pg_catalog, pg_temp as $$
begin
    perform set_config('lock_timeout', '2s', true);
    perform stile.guard_set(p_key, p_token, p_issuer);
    return (stile.cell_get(p_key)).answer;
end $$;

-- A key that is no UTF-8 is stored as the control character 1 and its bytes in hex. p_text: a text
-- that all other keys with this prefix begin with; null: none is known.
create or replace function stile.cell_list(p_prefix bytea, p_text text)
returns table (key text, answer text, size integer) language sql stable security definer
set search_path = pg_catalog, pg_temp as $$
    select g.resource, stile.cell_answer(0, g, g.token), octet_length(g.value)
    from stile.guarded g,
         lateral (select case when g.resource ^@ E'\x01' then decode(substr(g.resource, 2), 'hex')
                         else convert_to(g.resource, 'UTF8') end) k (bytes)
    where g.value is not null and (g.ends_at is null or g.ends_at > clock_timestamp())
      and substr(k.bytes, 1, octet_length(p_prefix)) = p_prefix
      and (p_text is null or g.resource ^@ p_text or g.resource ^@ E'\x01')
    order by k.bytes
$$;

-- ---- privileges ----

-- Only where nothing was granted yet: what is granted later stays. A role that may write cells may
-- also give them an end.
do $$
declare
    f regprocedure;
    v_grant text;
    v_is_new boolean := exists (select from pg_proc p where p.pronamespace = 'stile'::regnamespace
                                and p.proname = 'cell_keep' and p.proacl is null);
begin
    for f in select p.oid from pg_proc p
             where p.pronamespace = 'stile'::regnamespace and p.proname ~ '^(guard|cell|fence$)'
               and p.proname not in ('guard_required', 'guard_was_called') and p.proacl is null loop
        execute format('revoke all on routine %s from public', f);
    end loop;
    for v_grant in
        select format('grant execute on function stile.cell_keep to %s%s',
                      coalesce(quote_ident(r.rolname), 'public'),
                      case when a.is_grantable then ' with grant option' else '' end)
        from pg_proc p cross join lateral aclexplode(p.proacl) a
        left join pg_roles r on r.oid = a.grantee
        where v_is_new and p.pronamespace = 'stile'::regnamespace and p.proname = 'cell_write'
          and a.grantee <> p.proowner loop
        execute v_grant;
    end loop;
end $$;
commit;
