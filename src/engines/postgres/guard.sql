-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- Guards for PostgreSQL: refuse the writes of a holder whose lock has passed to another.
--
--     begin; select stile.guard('accounts', 34);          first in the transaction, in one message
--     update account set ...;                             any tables, any statements
--     commit;
--
-- The guard remembers, for each resource, the highest token that it has seen. A smaller one is
-- refused with SQLSTATE SG001, one from another issuer with SG002. The caller keeps a lock on the
-- resource until its transaction ends, so a larger token passes only after the writes of smaller
-- ones are committed or gone. Transactions with the same token do not wait for each other.
--
-- This file needs nothing else of stile and is safe to run again. Roles that write need
--     grant usage on schema stile to app;
--     grant execute on function stile.guard to app;
-- and nothing on the tables, with which they could lower a token: the functions run with the rights
-- of their owner. They are not for public, as any caller could lock out all others with a high token.

begin read write;
set local search_path = pg_catalog, pg_temp;
set local lock_timeout = '5s';
set local statement_timeout = 0;
select pg_advisory_xact_lock(hashtextextended('stile setup', 0));

create schema if not exists stile;

-- One row, which every change of guard_floor updates. pruned_version: the largest of the rows that
-- guard_prune() has deleted, so that no version comes back.
create table if not exists stile.guard_state (
    one boolean primary key default true check (one),
    version integer not null,
    pruned_version bigint not null default 0,
    pruned_at timestamptz
);
do $$ begin
    if exists (select from stile.guard_state where version > 1) then
        raise 'the guards here are newer than this version of stile knows: install a newer one';
    end if;
end $$;
insert into stile.guard_state (version) values (1) on conflict do nothing;

-- token 0: none was seen yet. value: that of the cell with this key, null: there is none. A resource
-- that was removed keeps its token, and its version.
create table if not exists stile.guarded (
    resource text collate "C" primary key,
    token bigint not null check (token >= 0),
    issuer text collate "C" not null,
    version bigint not null,
    value bytea,
    changed_at timestamptz not null,
    removed_at timestamptz
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

-- The highest token of each issuer among the rows that guard_prune() has deleted.
create table if not exists stile.guard_floor (
    issuer text collate "C" primary key,
    token bigint not null
);

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
    return v_row;
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
        set token = p_token, issuer = coalesce(nullif(p_issuer, ''), g.issuer),
            changed_at = clock_timestamp(), removed_at = null
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

-- Checks and remembers. The usual cases come first, each in one statement: the token is the highest
-- already, or it is larger and no other writer is in its way. (What is null is left to guard_pass().)
create or replace function stile.guard(
    resource text, token bigint, issuer text default '', strict boolean default false
) returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp as $$
declare
    v_noted text;
begin
    perform from stile.guarded g
    where g.resource = guard.resource and case
        when g.token = guard.token and g.token > 0 and g.removed_at is null
             and guard.issuer in ('', g.issuer) and not guard.strict
        then pg_try_advisory_xact_lock_shared(hashtextextended(guard.resource, 7350)) end
    for share;
    if not found then
        if (guard.token >= 1) is not true then
            raise exception using errcode = 'SG004',
                message = 'a token is a number from 1 to 9223372036854775807';
        elsif current_setting('synchronous_commit') <> 'on' then
            perform stile.guard_durably();
        end if;
        update stile.guarded g
        set token = guard.token, changed_at = clock_timestamp()
        where g.resource = guard.resource and case
            when g.token < guard.token and g.token > 0 and g.removed_at is null
                 and guard.issuer in ('', g.issuer)
            then pg_try_advisory_xact_lock(hashtextextended(guard.resource, 7350)) end;
        if not found then
            perform stile.guard_pass(guard.resource, guard.token, coalesce(guard.issuer, ''),
                                     guard.strict is true);
        end if;
    end if;
    -- For guard_required(): the transaction's number, and a line for each token and resource. A
    -- savepoint that is rolled back takes its lines with it.
    v_noted := set_config('stile.guarded', case
        when starts_with(current_setting('stile.guarded', true), pg_current_xact_id() || E'\n')
        then replace(current_setting('stile.guarded', true),
                     E'\n' || guard.token || ' ' || guard.resource || E'\n', '')
        else pg_current_xact_id()::text end
        || E'\n' || guard.token || ' ' || guard.resource || E'\n', true);
end $$;

-- ---- looking and managing ----

create or replace function stile.guard_show(resource text default null)
returns table (name text, token bigint, issuer text, changed_at timestamptz, removed_at timestamptz)
language sql stable security definer
set search_path = pg_catalog, pg_temp as $$
    select g.resource, g.token, g.issuer, g.changed_at, g.removed_at
    from stile.guarded g
    where guard_show.resource is null or g.resource = guard_show.resource
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
    where g.resource = guard_remove.resource;
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

-- Writes what has passed into a row that is locked or new. null: there is one by now.
create or replace function stile.cell_store(
    p_cell stile.guarded, p_verb text, p_key text, p_value bytea, p_token bigint, p_issuer text
) returns text language plpgsql
set search_path = pg_catalog, pg_temp as $$
declare
    v_cell stile.guarded := p_cell;
    v_now timestamptz := clock_timestamp();
begin
    if p_verb = 'remove' and p_cell.resource is null and p_token = 0 then
        return stile.cell_answer(0, p_cell, 0);
    end if;
    if p_cell.resource is null then
        insert into stile.guarded as g (resource, token, issuer, version, value, changed_at, removed_at)
        values (p_key, p_token, p_issuer,
                (select pruned_version from stile.guard_state)
                + case p_verb when 'put' then 1 else 0 end, p_value, v_now,
                case p_verb when 'remove' then v_now end)
        on conflict (resource) do nothing
        returning * into v_cell;
    else
        update stile.guarded g
        set token = p_token, issuer = coalesce(nullif(p_issuer, ''), g.issuer), changed_at = v_now,
            version = g.version + case p_verb when 'put' then 1 else 0 end,
            value = case p_verb when 'raise' then g.value else p_value end,
            removed_at = case p_verb when 'remove' then v_now end
        where g.resource = p_key
        returning * into v_cell;
    end if;
    return case when found then stile.cell_answer(0, v_cell, p_token) end;
end $$;

-- put, remove or raise.
create or replace function stile.cell_change(
    p_verb text, p_key text, p_value bytea, p_version bigint, p_token bigint, p_issuer text,
    p_strict boolean
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
        v_answer := stile.cell_refusal(v_cell, p_version, p_token, p_issuer, p_strict);
        exit when v_answer is not null;
        v_alone := p_verb <> 'raise' or stile.guard_changes(v_cell, p_token, p_issuer);
        perform stile.guard_enter(p_key, v_alone);
        v_cell := stile.guard_lock(p_key, v_alone);
        v_answer := stile.cell_refusal(v_cell, p_version, p_token, p_issuer, p_strict);
        if v_answer is null and v_alone then
            v_answer := stile.cell_store(v_cell, p_verb, p_key, p_value, p_token, p_issuer);
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
        when p_verb = 'put' and g.value is not null and coalesce(g.version = p_version, true)
             and (p_token = g.token or p_token > g.token and g.token > 0)
             and p_issuer in ('', g.issuer) and not p_strict
        then pg_try_advisory_xact_lock(hashtextextended(p_key, 7350)) end
    returning '0 ' || g.version || ' ' || g.token || ' ' || g.issuer into v_answer;
    if not found then
        return stile.cell_change(p_verb, p_key, p_value, p_version, p_token, p_issuer, p_strict);
    end if;
    return v_answer;
end $$;

create or replace function stile.cell_get(p_key text, out answer text, out value bytea)
language sql stable security definer
set search_path = pg_catalog, pg_temp as $$
    select stile.cell_answer(0, g, g.token), g.value
    from (select) one left join stile.guarded g on g.resource = p_key
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
    where g.value is not null and substr(k.bytes, 1, octet_length(p_prefix)) = p_prefix
      and (p_text is null or g.resource ^@ p_text or g.resource ^@ E'\x01')
    order by k.bytes
$$;

-- ---- privileges ----

-- Only where nothing was granted yet: what is granted later stays.
do $$
declare
    f regprocedure;
begin
    for f in select p.oid from pg_proc p
             where p.pronamespace = 'stile'::regnamespace and p.proname ~ '^(guard|cell)'
               and p.proname not in ('guard_required', 'guard_was_called') and p.proacl is null loop
        execute format('revoke all on function %s from public', f);
    end loop;
end $$;
commit;
