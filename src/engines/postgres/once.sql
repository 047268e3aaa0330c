-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- once for PostgreSQL: a transaction's work is done once for each key, and its result is stored with
-- it in the same commit.
--
--     begin; select * from stile.once('order-17', 'sha256 of the request', scope => 'customer 4');
--     run = true:  this transaction is the first. It does the work, and ends with
--         select stile.once_done('order-17', '{"paid": 5}', scope => 'customer 4'); commit;
--     run = false: the work is done. result is what the first one has stored.
--
-- While the first transaction is open, other callers with the same scope and key wait. If it commits,
-- they get its result; if it is rolled back, one of them becomes the first. lock_timeout limits the
-- wait. At REPEATABLE READ and SERIALIZABLE, a caller that has waited for a commit fails with 40001:
-- its snapshot is older than the result. Repeat the transaction.
--
-- SQLSTATE SG005: this key was used with another fingerprint. SG006: the first transaction tries to
-- commit without a result; nothing of it is kept. SG004: misuse.
--
-- This file needs nothing else of stile and is safe to run again. Callers need
--     grant usage on schema stile to app;
--     grant execute on function stile.once, stile.once_done to app;
-- and nothing on the table: the functions run with the rights of their owner. They are not for public,
-- as a caller that guesses a scope and a key gets the result.

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

-- done_at null: the transaction that has inserted the row, or taken it over, is still open. Other
-- transactions never see such a row. owner: that transaction.
create table if not exists stile.once_key (
    scope text collate "C" not null,
    key text collate "C" not null,
    fingerprint text collate "C" not null,
    owner xid8 not null default pg_current_xact_id(),
    keep interval not null,
    done_at timestamptz,
    expires_at timestamptz,
    result jsonb,
    primary key (scope, key)
);

-- ---- what is refused ----

create or replace function stile.once_check(
    p_key text, p_fingerprint text, p_scope text, p_keep interval
) returns void language plpgsql
set search_path = pg_catalog, pg_temp as $$
begin
    if p_key is null or p_key = '' or octet_length(p_key) > 512 or p_key ~ '[\x01-\x1f\x7f]' then
        raise exception using errcode = 'SG004',
            message = 'a key has 1 to 512 bytes, without control characters';
    elsif p_scope is null or octet_length(p_scope) > 512 or p_scope ~ '[\x01-\x1f\x7f]' then
        raise exception using errcode = 'SG004',
            message = 'a scope has at most 512 bytes, without control characters; the default is ''''';
    elsif octet_length(p_fingerprint) > 512 then
        raise exception using errcode = 'SG004',
            message = 'a fingerprint has at most 512 bytes',
            hint = 'Pass a hash of the request.';
    elsif p_keep <= interval '0' or p_keep > interval '100 years' then
        raise exception using errcode = 'SG004',
            message = format('a result cannot be kept for %s: the limit is 100 years', p_keep);
    end if;
end $$;

-- For messages.
create or replace function stile.once_name(p_key text, p_scope text) returns text
language sql immutable
set search_path = pg_catalog, pg_temp as $$
    select 'once(' || quote_nullable(p_key)
           || case p_scope when '' then '' else ', scope => ' || quote_nullable(p_scope) end || ')'
$$;

create or replace function stile.once_refuse_unfinished(p_key text, p_scope text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    raise exception using errcode = 'SG006',
        message = format('%s has no result', stile.once_name(p_key, p_scope)),
        detail = 'The transaction that does its work has not called stile.once_done().',
        hint = 'Call stile.once_done(key, result) before the commit, in the same transaction.';
end $$;

-- At the commit: the work must not be kept without its result, since no other caller would do it, nor
-- get an answer.
create or replace function stile.once_at_commit() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp as $$
begin
    if exists (select from stile.once_key k
               where k.scope = new.scope and k.key = new.key and k.done_at is null) then
        perform stile.once_refuse_unfinished(new.key, new.scope);
    end if;
    return null;
end $$;

do $$ begin
    if to_regclass('stile.once_expires') is null then
        create index once_expires on stile.once_key (expires_at);
    end if;
    if not exists (select from pg_trigger where tgrelid = 'stile.once_key'::regclass
                   and tgname = 'once_has_result') then
        create constraint trigger once_has_result after insert or update on stile.once_key
        deferrable initially deferred for each row when (new.done_at is null)
        execute function stile.once_at_commit();
    end if;
end $$;

-- ---- in the caller's transaction ----

-- True: the row is this transaction's. The insert waits for a transaction that has inserted or deleted
-- the row and is open, as the unique key demands; the update for one that has taken it over.
create or replace function stile.once_claim(
    p_key text, p_fingerprint text, p_scope text, p_keep interval
) returns boolean language plpgsql
set search_path = pg_catalog, pg_temp as $$
begin
    insert into stile.once_key (scope, key, fingerprint, keep)
    values (p_scope, p_key, p_fingerprint, p_keep)
    on conflict on constraint once_key_pkey do nothing;
    if not found then
        update stile.once_key k
        set fingerprint = p_fingerprint, owner = pg_current_xact_id(), keep = p_keep,
            done_at = null, expires_at = null, result = null
        where k.scope = p_scope and k.key = p_key and k.expires_at <= clock_timestamp();
    end if;
    return found;
end $$;

-- run true: do the work, then call once_done(). run false: the result of the first caller. The
-- fingerprint may be null, which is one of its own. keep: for how long the result is stored, from
-- once_done() on; after that the key may run again.
create or replace function stile.once(
    key text, fingerprint text default null, scope text default '',
    keep interval default '24 hours', out run boolean, out result jsonb
) language plpgsql security definer
set search_path = pg_catalog, pg_temp as $$
declare
    v_keep interval := coalesce(once.keep, interval '24 hours');
    v_fingerprint text := coalesce(once.fingerprint, '');
    v_stored stile.once_key;
begin
    perform stile.once_check(once.key, v_fingerprint, once.scope, v_keep);
    set constraints stile.once_has_result deferred; -- the caller may have made all immediate
    while v_stored.done_at is null loop
        run := stile.once_claim(once.key, v_fingerprint, once.scope, v_keep);
        exit when run;
        select * into v_stored from stile.once_key k
        where k.scope = once.scope and k.key = once.key;
        if found and v_stored.done_at is null then
            perform stile.once_refuse_unfinished(once.key, once.scope);
        end if;
    end loop; -- again if the row was pruned meanwhile
    if v_stored.fingerprint <> v_fingerprint then
        raise exception using errcode = 'SG005',
            message = format('%s was used with another fingerprint',
                             stile.once_name(once.key, once.scope)),
            detail = format('Its result was stored at %s.', v_stored.done_at),
            hint = 'A new request needs a new key.';
    end if;
    result := v_stored.result;
end $$;

-- Stores the result, in the transaction that has been told to run.
create or replace function stile.once_done(key text, result jsonb, scope text default '')
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp as $$
begin
    if octet_length(once_done.result::text) > 1048576 then
        raise exception using errcode = 'SG004', message = 'a result has at most 1 MiB';
    end if;
    update stile.once_key k
    set result = once_done.result, done_at = clock_timestamp(),
        expires_at = clock_timestamp() + k.keep
    where k.scope = once_done.scope and k.key = once_done.key and k.done_at is null
      and k.owner = pg_current_xact_id();
    if not found then
        raise exception using errcode = 'SG004',
            message = format('%s was not called first in this transaction, or was not told to run',
                             stile.once_name(once_done.key, once_done.scope)),
            hint = 'Only the caller that got run = true stores a result, and only once.';
    end if;
end $$;

-- ---- managing ----

-- Deletes results that have expired, at most so many, and returns how many. Repeat it until it
-- returns 0; each call is a transaction of its own.
create or replace function stile.once_prune(most integer default 1000) returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp as $$
declare
    v_now timestamptz := clock_timestamp();
    v_deleted bigint;
begin
    with expired as (
        select k.scope, k.key from stile.once_key k
        where k.expires_at <= v_now order by k.expires_at limit once_prune.most
        for update skip locked
    )
    delete from stile.once_key k using expired e where k.scope = e.scope and k.key = e.key;
    get diagnostics v_deleted = row_count;
    return v_deleted;
end $$;

-- ---- privileges ----

-- Only where nothing was granted yet: what is granted later stays.
do $$
declare
    f regprocedure;
begin
    for f in select p.oid from pg_proc p
             where p.pronamespace = 'stile'::regnamespace and p.proname ~ '^once(_|$)'
               and p.proacl is null loop
        execute format('revoke all on function %s from public', f);
    end loop;
end $$;
commit;
