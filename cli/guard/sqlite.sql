-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- The guard of SQLite (3.24 or later): refuses writes with a fencing token that is smaller than the
-- largest one seen. For the sqlite3 shell and any driver; safe to run again.
--
--     BEGIN IMMEDIATE;
--     INSERT INTO stile_guard (resource, token, issuer) VALUES ('accounts', 34, 'redis:accounts');
--     UPDATE accounts SET ...;
--     COMMIT;
--
-- A refused token is an error (SQLITE_CONSTRAINT_TRIGGER) whose message starts with SG001 (stale),
-- SG002 (another issuer), SG003 (a write without a token) or SG004 (misuse). A message cannot name
-- the highest token: SELECT token FROM stile_guard WHERE resource = 'accounts'.
--
--     INSERT INTO stile_guard ...         in a transaction: the guard. Alone: a new holder raises it
--                                         before it reads. With strict = 1, refuses an equal token
--     SELECT * FROM stile_guard           what has been seen
--     UPDATE stile_guard SET token = 0, issuer = '' WHERE resource = ...
--                                         for administrators: from now on exactly this has been seen
--     DELETE FROM stile_guard WHERE resource = ...
--                                         the resource no longer exists; its highest token stays
--     INSERT INTO stile_guard_prune (days) VALUES (30)
--                                         forgets resources removed so long ago, but keeps the
--                                         highest token of each issuer
--
-- How it works. SQLite has one writer at a time, and the guard is a write: so the token that passed
-- is the highest until the transaction ends. BEGIN IMMEDIATE waits for other writers before it reads
-- anything; after a plain BEGIN, call the guard before the first SELECT, or it may fail with
-- SQLITE_BUSY. An error does not end the transaction: roll it back. In a script for the shell use
-- `sqlite3 -bail`, or it goes on behind the error.

BEGIN IMMEDIATE;

-- One row per resource, even if it was removed.
CREATE TABLE IF NOT EXISTS stile_guard_seen (
    resource TEXT NOT NULL PRIMARY KEY,
    token INTEGER NOT NULL CHECK (typeof(token) = 'integer'),
    issuer TEXT NOT NULL,
    since TEXT NOT NULL,
    removed_at TEXT -- NULL: it exists
) WITHOUT ROWID;

-- The highest token that was pruned, by issuer: for a token of this issuer, a resource without a row
-- starts there.
CREATE TABLE IF NOT EXISTS stile_guard_floor (
    issuer TEXT NOT NULL PRIMARY KEY,
    token INTEGER NOT NULL
) WITHOUT ROWID;

-- Views are made anew, and their triggers with them.
DROP VIEW IF EXISTS stile_guard;
DROP VIEW IF EXISTS stile_guard_prune;
DROP VIEW IF EXISTS stile_guard_required;
DROP TRIGGER IF EXISTS stile_guard_kept;

CREATE VIEW stile_guard AS
SELECT resource, token, issuer, NULL AS strict, since, removed_at FROM stile_guard_seen;

-- A token may be given as a text of digits. Any other text would be larger than all numbers.
CREATE TRIGGER stile_guard_passes INSTEAD OF INSERT ON stile_guard
BEGIN
    SELECT CASE
        WHEN typeof(NEW.resource) <> 'text' OR NEW.resource = '' THEN
            RAISE(ABORT, 'SG004: a guard needs the name of its resource')
        WHEN length(CAST(NEW.resource AS BLOB)) > 512 OR instr(NEW.resource, char(0)) > 0
             OR NEW.resource GLOB '*[' || char(1) || '-' || char(31) || char(127) || ']*' THEN
            RAISE(ABORT, 'SG004: the name of a resource has 512 bytes at most, no control characters')
        WHEN length(CAST(NEW.issuer AS BLOB)) > 600 OR instr(NEW.issuer, char(0)) > 0
             OR NEW.issuer GLOB '*[' || char(1) || '-' || char(31) || char(127) || ']*' THEN
            RAISE(ABORT, 'SG004: the issuer of a token has 600 bytes at most, no control characters')
        WHEN CASE typeof(NEW.token)
                 WHEN 'integer' THEN NEW.token < 1
                 WHEN 'text' THEN CAST(NEW.token AS INTEGER) < 1
                                  OR CAST(CAST(NEW.token AS INTEGER) AS TEXT) <> NEW.token
                 ELSE TRUE
             END THEN
            RAISE(ABORT, 'SG004: a token is a number from 1 to 9223372036854775807')
    END;
    SELECT CASE
        WHEN coalesce(NEW.issuer, '') NOT IN ('', seen.issuer) AND seen.issuer <> '' THEN
            RAISE(ABORT, 'SG002: a token of another issuer: the resource''s own is in stile_guard')
        WHEN CAST(NEW.token AS INTEGER) < seen.token
             OR coalesce(NEW.strict, 0) AND CAST(NEW.token AS INTEGER) = seen.token THEN
            RAISE(ABORT, 'SG001: stale token: the highest seen is in stile_guard')
    END
    FROM (SELECT token, issuer FROM stile_guard_seen WHERE resource = NEW.resource
          UNION ALL
          SELECT max(token), '' FROM stile_guard_floor
          WHERE coalesce(NEW.issuer, '') IN ('', issuer)
            AND NOT EXISTS (SELECT 1 FROM stile_guard_seen WHERE resource = NEW.resource)) seen;
    INSERT INTO stile_guard_seen (resource, token, issuer, since)
    VALUES (NEW.resource, CAST(NEW.token AS INTEGER), coalesce(NEW.issuer, ''),
            strftime('%Y-%m-%d %H:%M:%f', 'now'))
    ON CONFLICT (resource) DO UPDATE
    SET token = excluded.token, since = excluded.since, removed_at = NULL,
        issuer = CASE excluded.issuer WHEN '' THEN issuer ELSE excluded.issuer END
    WHERE excluded.token > token OR removed_at IS NOT NULL OR issuer = '' AND excluded.issuer <> '';
END;

CREATE TRIGGER stile_guard_reset INSTEAD OF UPDATE ON stile_guard
BEGIN
    SELECT RAISE(ABORT, 'SG004: a guard keeps its resource, and a token is a number from 0 on')
    WHERE NEW.resource IS NOT OLD.resource OR typeof(NEW.token) <> 'integer' OR NEW.token < 0;
    UPDATE stile_guard_seen
    SET token = NEW.token, issuer = coalesce(NEW.issuer, ''), removed_at = NULL,
        since = strftime('%Y-%m-%d %H:%M:%f', 'now')
    WHERE resource = OLD.resource;
END;

-- A late holder could create the resource again: so the row stays.
CREATE TRIGGER stile_guard_remove INSTEAD OF DELETE ON stile_guard
BEGIN
    UPDATE stile_guard_seen
    SET removed_at = coalesce(removed_at, strftime('%Y-%m-%d %H:%M:%f', 'now'))
    WHERE resource = OLD.resource;
END;

CREATE TRIGGER stile_guard_kept BEFORE DELETE ON stile_guard_seen
WHEN OLD.token > coalesce((SELECT token FROM stile_guard_floor WHERE issuer = OLD.issuer), 0)
BEGIN
    SELECT RAISE(ABORT, 'SG004: a highest token is not deleted: DELETE FROM stile_guard, then prune');
END;

-- Rows without an issuer stay: nothing says which tokens theirs may be compared with.
CREATE VIEW stile_guard_prune AS SELECT NULL AS days WHERE FALSE;
CREATE TRIGGER stile_guard_prunes INSTEAD OF INSERT ON stile_guard_prune
BEGIN
    INSERT INTO stile_guard_floor (issuer, token)
    SELECT issuer, max(token) FROM stile_guard_seen
    WHERE issuer <> '' AND julianday(removed_at) <= julianday('now') - NEW.days
    GROUP BY issuer
    ON CONFLICT (issuer) DO UPDATE SET token = max(token, excluded.token);
    DELETE FROM stile_guard_seen
    WHERE issuer <> '' AND julianday(removed_at) <= julianday('now') - NEW.days;
END;

-- ---- tables that must not be written without a token ----
--
-- A trigger cannot see whether its transaction has called the guard. So each write carries its token,
-- in a column `token` of the table: triggers pass it to the guard and set the column back to NULL. For
-- the table `accounts`, which must have a rowid, this adds them:
--
--     sqlite3 app.db "ALTER TABLE accounts ADD COLUMN token INTEGER"
--     sqlite3 app.db "SELECT text FROM stile_guard_required WHERE tab = 'accounts'" | sqlite3 app.db
--
-- The resource is the name of the table. From then on:
--
--     INSERT INTO accounts (id, balance, token) VALUES (2, 0, 34);
--     UPDATE accounts SET balance = 5, token = 34 WHERE id = 2;
--     UPDATE accounts SET token = -34 WHERE id = 2;  -- a DELETE carries no token: mark the row first
--     DELETE FROM accounts WHERE token = -34;
CREATE VIEW stile_guard_required AS
SELECT t.name AS tab, replace(replace('
CREATE TRIGGER "stile_guard_insert_<tab>" BEFORE INSERT ON "<tab>"
BEGIN
    SELECT RAISE(ABORT, ''SG003: a write without a token'') WHERE NEW.token IS NULL;
    INSERT INTO stile_guard (resource, token) VALUES (<resource>, NEW.token);
END;
CREATE TRIGGER "stile_guard_inserted_<tab>" AFTER INSERT ON "<tab>"
BEGIN
    UPDATE "<tab>" SET token = NULL WHERE rowid = NEW.rowid;
END;
CREATE TRIGGER "stile_guard_update_<tab>" BEFORE UPDATE ON "<tab>"
WHEN NOT coalesce(OLD.token > 0 AND NEW.token IS NULL, FALSE)
BEGIN
    SELECT RAISE(ABORT, ''SG003: a write without a token'')
    WHERE NEW.token IS NULL OR NEW.token IS OLD.token;
    INSERT INTO stile_guard (resource, token) VALUES (<resource>, abs(NEW.token));
END;
CREATE TRIGGER "stile_guard_updated_<tab>" AFTER UPDATE ON "<tab>"
WHEN NEW.token > 0
BEGIN
    UPDATE "<tab>" SET token = NULL WHERE rowid = NEW.rowid;
END;
CREATE TRIGGER "stile_guard_delete_<tab>" BEFORE DELETE ON "<tab>"
BEGIN
    SELECT RAISE(ABORT, ''SG003: a deletion without a token: set the column token to minus yours'')
    WHERE coalesce(OLD.token, 0) >= 0;
    INSERT INTO stile_guard (resource, token) VALUES (<resource>, -OLD.token);
END;', '<resource>', quote(t.name)), '<tab>', replace(t.name, '"', '""')) AS text
FROM sqlite_master t
WHERE t.type = 'table' AND t.name NOT LIKE 'stile\_guard\_%' ESCAPE '\'
  AND EXISTS (SELECT 1 FROM pragma_table_info(t.name) c WHERE c.name = 'token');

COMMIT;
