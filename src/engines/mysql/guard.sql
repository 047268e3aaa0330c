-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- The guard of MySQL and MariaDB: refuses writes with a fencing token that is smaller than the
-- largest one seen. It needs nothing else of stile, and is safe to run again.
--
--     START TRANSACTION;
--     CALL stile_guard('accounts', 34, 'redis:accounts');
--     UPDATE accounts SET ...;
--     COMMIT;
--
-- A stale token is an error with SQLSTATE SG001 (error 31001), one of another issuer SG002 (31002),
-- a write without a guard SG003 (31003), misuse SG004 (31004). The server does not end a transaction
-- because of an error: roll it back.
--
-- Users need SELECT, INSERT and UPDATE on stile_guard, SELECT and UPDATE on stile_guard_floor, and
-- EXECUTE on the procedures stile_guard*. For stile_guard_prune add DELETE on stile_guard and INSERT
-- on stile_guard_floor. For cells with an end add DELETE on stile_guard.
--
-- How it works. A transaction with the highest token locks the resource's row in share mode until it
-- ends, so that transactions of one holder run side by side. One with a larger token locks the row
-- exclusively: it waits for those of smaller tokens, and those that come later wait for it. InnoDB
-- locks, and reads under a lock, the row's latest version, whatever the isolation level and however
-- old the transaction's snapshot. A locking read does not take a snapshot, either: under REPEATABLE
-- READ, too, a SELECT after the guard sees all that earlier holders have committed. One before the
-- guard does not, so call the guard first.

-- A procedure keeps the mode it was created in. In this one, a token that does not fit is an error,
-- and is not cut to the largest possible one.
SET @stile_sql_mode = @@SESSION.sql_mode, SESSION sql_mode = 'STRICT_ALL_TABLES';

-- One row per resource: the highest token seen (0: none), and its issuer if one was ever given. If
-- there is a cell of this name, its value, and how often one was put. A resource that was removed
-- keeps its row until stile_guard_prune. That of a cell with an end counts as absent from then on,
-- and some later put of such a cell deletes it. Times are UTC.
CREATE TABLE IF NOT EXISTS stile_guard (
    resource VARBINARY(512) NOT NULL PRIMARY KEY,
    token BIGINT NOT NULL,
    issuer VARBINARY(600) NOT NULL,
    version BIGINT UNSIGNED NOT NULL,
    since DATETIME(6) NOT NULL,
    removed_at DATETIME(6), -- NULL: it exists
    value MEDIUMBLOB,       -- NULL: there is no cell
    ends_at DATETIME(6),    -- NULL: it has no end
    KEY removed (removed_at),
    KEY ends (ends_at)
) ENGINE=InnoDB COMMENT='highest fencing tokens: stile_guard';

-- Tables of earlier versions have no ends.
SET @stile_statement = IF(
    EXISTS (SELECT 1 FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE()
            AND TABLE_NAME = 'stile_guard' AND COLUMN_NAME = 'ends_at'),
    'DO 0', 'ALTER TABLE stile_guard ADD COLUMN ends_at DATETIME(6), ADD KEY ends (ends_at)');
PREPARE stile_statement FROM @stile_statement;
EXECUTE stile_statement;
DEALLOCATE PREPARE stile_statement;

-- The highest token that was pruned, by issuer: for a token of this issuer, a resource that has seen
-- none starts there. The row without an issuer has the highest version, and is locked by each prune.
CREATE TABLE IF NOT EXISTS stile_guard_floor (
    issuer VARBINARY(600) NOT NULL PRIMARY KEY,
    token BIGINT NOT NULL,
    version BIGINT UNSIGNED NOT NULL
) ENGINE=InnoDB;
INSERT IGNORE INTO stile_guard_floor VALUES ('', 0, 0);

-- MySQL cannot replace a procedure, and dropping it revokes the privileges on it: grant EXECUTE on
-- the database there. `stile setup` leaves these lines out on MariaDB.
DROP PROCEDURE IF EXISTS stile_guard_refuse;
DROP PROCEDURE IF EXISTS stile_guard_needs_transaction;
DROP PROCEDURE IF EXISTS stile_guard_needs_sense;
DROP PROCEDURE IF EXISTS stile_guard_add;
DROP PROCEDURE IF EXISTS stile_guard_first;
DROP PROCEDURE IF EXISTS stile_guard_decide;
DROP PROCEDURE IF EXISTS stile_guard;
DROP PROCEDURE IF EXISTS stile_guard_strict;
DROP PROCEDURE IF EXISTS stile_guard_raise;
DROP PROCEDURE IF EXISTS stile_guard_reset;
DROP PROCEDURE IF EXISTS stile_guard_remove;
DROP PROCEDURE IF EXISTS stile_guard_prune;
DROP PROCEDURE IF EXISTS stile_guard_trigger;
DROP PROCEDURE IF EXISTS stile_guard_required;
DROP PROCEDURE IF EXISTS stile_cell_write;

DELIMITER //

-- ---- parts ----

-- Ends with the error, and leaves the highest token in @stile_guard_highest. A message has room for
-- 128 characters; names are cut, the numbers never are. A name that is not UTF-8 is left out.
CREATE /*M!100103 OR REPLACE */ PROCEDURE stile_guard_refuse(
    p_resource VARBINARY(512), p_token BIGINT, p_issuer VARBINARY(600), p_highest BIGINT,
    p_highest_issuer VARBINARY(600), p_why VARCHAR(16) CHARACTER SET ascii
) SQL SECURITY INVOKER
BEGIN
    DECLARE v_name, v_issuer, v_highest_issuer VARCHAR(600) CHARACTER SET utf8mb4;
    DECLARE v_text VARCHAR(128) CHARACTER SET utf8mb4;
    DECLARE CONTINUE HANDLER FOR 1300 BEGIN END;
    SET @stile_guard_highest = p_highest;
    SET v_name = CONVERT(p_resource USING utf8mb4);
    SET v_issuer = CONVERT(p_issuer USING utf8mb4);
    SET v_highest_issuer = CONVERT(p_highest_issuer USING utf8mb4);
    SET v_name = COALESCE(v_name, '?'), v_issuer = COALESCE(v_issuer, '?'),
        v_highest_issuer = COALESCE(v_highest_issuer, '?');
    IF p_why = 'foreign' THEN
        SET v_text = CONCAT('token of ', LEFT(v_issuer, 30), ' for ', LEFT(v_name, 20),
                            ', whose tokens come from ', LEFT(v_highest_issuer, 30));
        SIGNAL SQLSTATE 'SG002' SET MYSQL_ERRNO = 31002, MESSAGE_TEXT = v_text;
    END IF;
    SET v_text = CONCAT('stale token ', p_token, ' for ',
                        IF(CHAR_LENGTH(v_name) > 40, CONCAT(LEFT(v_name, 37), '...'), v_name),
                        ': the highest seen is ', p_highest);
    SIGNAL SQLSTATE 'SG001' SET MYSQL_ERRNO = 31001, MESSAGE_TEXT = v_text;
END//

-- Refuses a guard that would be a transaction of its own, and protect nothing that follows. MySQL
-- does not say whether a transaction is open; without one, a savepoint is gone at once.
CREATE /*M!100103 OR REPLACE */ PROCEDURE stile_guard_needs_transaction() SQL SECURITY INVOKER
BEGIN
    DECLARE EXIT HANDLER FOR 1305
        SIGNAL SQLSTATE 'SG004' SET MYSQL_ERRNO = 31004,
            MESSAGE_TEXT = 'no transaction is open: START TRANSACTION first, or CALL stile_guard_raise';
    SAVEPOINT stile_guard_probe;
    RELEASE SAVEPOINT stile_guard_probe;
END//

-- A BIGINT would round the fraction of a token away, and let 33.5 pass as 34: so no procedure that users
-- call has one.
CREATE /*M!100103 OR REPLACE */ PROCEDURE stile_guard_needs_sense(
    p_resource VARBINARY(2048), p_token DECIMAL(65,30), p_least BIGINT, p_issuer VARBINARY(2048)
) SQL SECURITY INVOKER
BEGIN
    DECLARE v_text VARCHAR(128) CHARACTER SET utf8mb4 DEFAULT CASE
        WHEN p_resource IS NULL OR p_resource = '' THEN 'a guard needs the name of its resource'
        WHEN LENGTH(p_resource) > 512 THEN 'the name of a resource has 512 bytes at most'
        WHEN HEX(p_resource) REGEXP '^([0-9A-F]{2})*([01][0-9A-F]|7F)' THEN
            'the name of a resource has no control characters'
        WHEN LENGTH(p_issuer) > 600 THEN 'the issuer of a token has 600 bytes at most'
        WHEN HEX(p_issuer) REGEXP '^([0-9A-F]{2})*([01][0-9A-F]|7F)' THEN
            'the issuer of a token has no control characters'
        WHEN p_token IS NULL OR p_token < p_least OR p_token <> FLOOR(p_token) THEN
            CONCAT('a token is a whole number from ', p_least, ' on, not ',
                   COALESCE(TRIM(TRAILING '.' FROM TRIM(TRAILING '0' FROM p_token)), 'NULL'))
    END;
    IF v_text IS NOT NULL THEN
        SIGNAL SQLSTATE 'SG004' SET MYSQL_ERRNO = 31004, MESSAGE_TEXT = v_text;
    END IF;
END//

-- Makes sure that there is a row, without a token. INSERT comes without a SELECT before it: two
-- transactions that had both looked for a missing row would block each other. The floors are locked,
-- so that no prune deletes rows while the version is read.
CREATE /*M!100103 OR REPLACE */ PROCEDURE stile_guard_add(p_resource VARBINARY(512))
SQL SECURITY INVOKER
BEGIN
    INSERT INTO stile_guard (resource, token, issuer, version, since)
    SELECT p_resource, 0, '', f.version, UTC_TIMESTAMP(6) FROM stile_guard_floor f
    WHERE f.issuer = '' LOCK IN SHARE MODE
    ON DUPLICATE KEY UPDATE token = stile_guard.token;
END//

-- Any case but the usual one: the first token of a resource, the first issuer, a token that is refused.
-- Sets p_passed if the token has passed or is already the highest; if not, the row has changed meanwhile.
CREATE /*M!100103 OR REPLACE */ PROCEDURE stile_guard_first(
    p_resource VARBINARY(2048), p_token BIGINT, p_issuer VARBINARY(2048), p_strict BOOLEAN,
    OUT p_passed BOOLEAN
) SQL SECURITY INVOKER
BEGIN
    DECLARE v_highest, v_floor BIGINT;
    DECLARE v_issuer VARBINARY(600);
    CALL stile_guard_needs_sense(p_resource, p_token, 1, p_issuer);
    CALL stile_guard_add(p_resource);
    UPDATE stile_guard
    SET token = 0, issuer = '', value = NULL, removed_at = UTC_TIMESTAMP(6), ends_at = NULL
    WHERE resource = p_resource AND ends_at <= UTC_TIMESTAMP(6);
    UPDATE stile_guard
    SET token = p_token, issuer = IF(p_issuer = '', issuer, p_issuer), since = UTC_TIMESTAMP(6),
        removed_at = NULL
    WHERE resource = p_resource AND (issuer IN ('', p_issuer) OR p_issuer = '')
      AND (token > 0 AND token < p_token
           OR token > 0 AND token = p_token AND issuer = '' AND p_issuer <> '' AND NOT p_strict
           OR token = 0 AND p_token - COALESCE(p_strict, FALSE) >= (
               SELECT MAX(f.token) FROM stile_guard_floor f
               WHERE f.issuer IN ('', p_issuer) OR p_issuer = ''));
    SET p_passed = ROW_COUNT() > 0;
    IF NOT p_passed THEN
        SELECT MAX(f.token) INTO v_floor FROM stile_guard_floor f
        WHERE f.issuer IN ('', p_issuer) OR p_issuer = '' LOCK IN SHARE MODE;
        SELECT IF(g.token = 0, v_floor, g.token), g.issuer INTO v_highest, v_issuer
        FROM stile_guard g WHERE g.resource = p_resource FOR UPDATE;
        IF p_issuer <> v_issuer AND p_issuer <> '' AND v_issuer <> '' THEN
            CALL stile_guard_refuse(p_resource, p_token, p_issuer, v_highest, v_issuer, 'foreign');
        ELSEIF p_token < v_highest OR p_strict AND p_token = v_highest THEN
            CALL stile_guard_refuse(p_resource, p_token, p_issuer, v_highest, v_issuer, 'stale');
        END IF;
        SET p_passed = p_token = v_highest AND (p_issuer = '' OR v_issuer <> '');
    END IF;
END//

-- Checks and remembers, under an exclusive lock. Called alone, each statement is a transaction of
-- its own: so it is the UPDATE itself that compares. The one here is the usual raise, of an issuer that
-- is known; no name needs to be checked for it.
CREATE /*M!100103 OR REPLACE */ PROCEDURE stile_guard_decide(
    p_resource VARBINARY(2048), p_token DECIMAL(65,30), p_issuer VARBINARY(2048), p_strict BOOLEAN
) SQL SECURITY INVOKER
BEGIN
    DECLARE v_passed BOOLEAN;
    DECLARE v_token BIGINT DEFAULT p_token;
    SET @stile_guard_token = NULL, p_issuer = COALESCE(p_issuer, '');
    IF v_token <> p_token THEN
        CALL stile_guard_needs_sense(p_resource, p_token, 1, p_issuer);
    END IF;
    UPDATE stile_guard
    SET token = v_token, since = UTC_TIMESTAMP(6), removed_at = NULL
    WHERE resource = p_resource AND (issuer = p_issuer OR p_issuer = '')
      AND token > 0 AND token < v_token AND (ends_at IS NULL OR ends_at > UTC_TIMESTAMP(6));
    SET v_passed = ROW_COUNT() > 0;
    WHILE NOT v_passed DO
        CALL stile_guard_first(p_resource, v_token, p_issuer, p_strict, v_passed);
    END WHILE;
    SET @stile_guard_resource = p_resource, @stile_guard_token = v_token,
        @stile_guard_highest = v_token;
END//

-- ---- to be called in a transaction, before it reads or writes ----

-- Passes if no larger token has been seen, and none will be before this transaction ends. p_issuer
-- may be '' or NULL. It does not wait for a share of a row that another transaction is raising, but
-- queues for the row itself: all that had waited would be granted their shares at once, and those
-- with larger tokens would block each other. Two that do are a deadlock, and one is rolled back;
-- repeat it. MySQL, and MariaDB before 10.6, can't skip a locked row here, so it happens more often
-- there, but never after a stile_guard_raise. Tokens are compared as text first, which is quicker; one
-- that is written otherwise, such as 034, is left to stile_guard_decide.
CREATE /*M!100103 OR REPLACE */ PROCEDURE stile_guard(
    p_resource VARBINARY(2048), p_token VARBINARY(128), p_issuer VARBINARY(2048)
) SQL SECURITY INVOKER
BEGIN
    DECLARE v_highest VARBINARY(20);
    DECLARE v_issuer VARBINARY(600);
    SET @stile_guard_token = NULL;
    IF /*M!100003 @@in_transaction = 0 AND */ @@autocommit THEN
        CALL stile_guard_needs_transaction();
    END IF;
    SELECT IF(g.ends_at <= UTC_TIMESTAMP(6), 0, g.token), g.issuer, g.resource, g.token
    INTO v_highest, v_issuer, @stile_guard_resource, @stile_guard_token
    FROM stile_guard g WHERE g.resource = p_resource LOCK IN SHARE MODE /*M!100600 SKIP LOCKED */;
    IF (p_token = v_highest AND v_highest <> '0'
        AND (p_issuer = v_issuer OR COALESCE(p_issuer, '') = '')) IS NOT TRUE THEN
        SET @stile_guard_token = NULL;
        CALL stile_guard_decide(p_resource, p_token, p_issuer, FALSE);
    END IF;
END//

-- Passes only if the token is larger than any before: each transaction has a token of its own.
CREATE /*M!100103 OR REPLACE */ PROCEDURE stile_guard_strict(
    p_resource VARBINARY(2048), p_token DECIMAL(65,30), p_issuer VARBINARY(2048)
) SQL SECURITY INVOKER
BEGIN
    SET @stile_guard_token = NULL;
    IF /*M!100003 @@in_transaction = 0 AND */ @@autocommit THEN
        CALL stile_guard_needs_transaction();
    END IF;
    CALL stile_guard_decide(p_resource, p_token, p_issuer, TRUE);
END//

-- ---- to be called alone ----

-- A new holder calls it before it reads anything: from then on smaller tokens are refused.
CREATE /*M!100103 OR REPLACE */ PROCEDURE stile_guard_raise(
    p_resource VARBINARY(2048), p_token DECIMAL(65,30), p_issuer VARBINARY(2048)
) SQL SECURITY INVOKER
BEGIN
    CALL stile_guard_decide(p_resource, p_token, p_issuer, FALSE);
END//

-- For administrators, when a resource moves to another lock: sets the highest token and the issuer,
-- whatever they were. 0 and '': as if none had been seen.
CREATE /*M!100103 OR REPLACE */ PROCEDURE stile_guard_reset(
    p_resource VARBINARY(2048), p_token DECIMAL(65,30), p_issuer VARBINARY(2048)
) SQL SECURITY INVOKER
BEGIN
    CALL stile_guard_needs_sense(p_resource, p_token, 0, p_issuer);
    CALL stile_guard_add(p_resource);
    UPDATE stile_guard
    SET token = p_token, issuer = COALESCE(p_issuer, ''), since = UTC_TIMESTAMP(6),
        value = IF(ends_at <= UTC_TIMESTAMP(6), NULL, value),
        ends_at = IF(ends_at <= UTC_TIMESTAMP(6), NULL, ends_at)
    WHERE resource = p_resource;
END//

-- The resource no longer exists, nor the cell of its name. Its row stays: a late holder could create
-- it again.
CREATE /*M!100103 OR REPLACE */ PROCEDURE stile_guard_remove(p_resource VARBINARY(2048))
SQL SECURITY INVOKER
BEGIN
    UPDATE stile_guard SET removed_at = COALESCE(removed_at, UTC_TIMESTAMP(6)), value = NULL
    WHERE resource = p_resource AND (ends_at IS NULL OR ends_at > UTC_TIMESTAMP(6));
END//

-- Deletes the rows of resources that were removed this many days ago, and keeps the highest token of
-- each issuer. Rows with a token but no issuer stay: nothing says which tokens theirs may be compared
-- with.
CREATE /*M!100103 OR REPLACE */ PROCEDURE stile_guard_prune(p_days INT UNSIGNED) SQL SECURITY INVOKER
BEGIN
    DECLARE v_version BIGINT UNSIGNED;
    DECLARE v_until DATETIME(6) DEFAULT UTC_TIMESTAMP(6) - INTERVAL p_days DAY;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        ROLLBACK AND NO CHAIN NO RELEASE;
        RESIGNAL;
    END;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    SELECT f.version INTO v_version FROM stile_guard_floor f WHERE f.issuer = '' FOR UPDATE;
    INSERT INTO stile_guard_floor (issuer, token, version)
    SELECT g.issuer, g.token, g.version FROM stile_guard g FORCE INDEX (removed)
    WHERE g.removed_at <= v_until AND (g.issuer <> '' OR g.token = 0) AND g.ends_at IS NULL FOR UPDATE
    ON DUPLICATE KEY UPDATE token = GREATEST(stile_guard_floor.token, VALUES(token)),
                            version = GREATEST(stile_guard_floor.version, VALUES(version));
    SELECT MAX(f.version) INTO v_version FROM stile_guard_floor f FOR UPDATE;
    UPDATE stile_guard_floor SET version = v_version WHERE issuer = '';
    -- One that was removed since the first statement may be above the floor: it stays.
    DELETE g FROM stile_guard g FORCE INDEX (removed) JOIN stile_guard_floor f ON f.issuer = g.issuer
    WHERE g.removed_at <= v_until AND (g.issuer <> '' OR g.token = 0) AND g.token <= f.token
      AND g.version <= v_version AND g.ends_at IS NULL;
    COMMIT AND NO CHAIN NO RELEASE;
END//

-- ---- for tables that must not be written without a guard ----

-- Called by the triggers of such a table. What this session's last guard said may be old, as no
-- variable ends with its transaction: so the token is checked once more, in the transaction that
-- writes.
CREATE /*M!100103 OR REPLACE */ PROCEDURE stile_guard_trigger() SQL SECURITY INVOKER
BEGIN
    DECLARE v_highest BIGINT;
    IF @stile_guard_token IS NOT NULL THEN
        SELECT g.token INTO v_highest FROM stile_guard g
        WHERE g.resource = @stile_guard_resource LOCK IN SHARE MODE;
    END IF;
    IF v_highest > @stile_guard_token THEN
        CALL stile_guard_refuse(@stile_guard_resource, @stile_guard_token, '', v_highest, '', 'stale');
    ELSEIF v_highest IS NULL OR v_highest < @stile_guard_token THEN
        SIGNAL SQLSTATE 'SG003' SET MYSQL_ERRNO = 31003,
            MESSAGE_TEXT = 'this transaction called no guard: CALL stile_guard before it writes';
    END IF;
END//

-- Prints the statements that make this table refuse writes without a guard, which a procedure cannot
-- run: mariadb -N -e "CALL stile_guard_required('accounts')" app | mariadb app
CREATE /*M!100103 OR REPLACE */ PROCEDURE stile_guard_required(p_table VARCHAR(64) CHARACTER SET utf8mb4)
SQL SECURITY INVOKER
BEGIN
    DECLARE v_table VARCHAR(130) CHARACTER SET utf8mb4 DEFAULT REPLACE(p_table, '`', '``');
    DECLARE v_name VARCHAR(130) CHARACTER SET utf8mb4
        DEFAULT IF(CHAR_LENGTH(p_table) > 45, MD5(p_table), v_table);
    SELECT CONCAT('CREATE TRIGGER `stile_guard_', LOWER(e.verb), '_', v_name, '` BEFORE ', e.verb,
                  ' ON `', v_table, '` FOR EACH ROW CALL stile_guard_trigger();') AS statement
    FROM (SELECT 'INSERT' AS verb UNION ALL SELECT 'UPDATE' UNION ALL SELECT 'DELETE') e;
END//

-- ---- cells, for the library and the command ----

-- One request about a cell or its guard: 'put', 'remove', 'raise' or 'reset', in a transaction of its
-- own. 'put 60000' gives the cell an end, after so many milliseconds. p_version NULL: any; p_token 0:
-- none; p_wait FALSE: fails if the row is locked (on MariaDB, which has no NOWAIT in procedures, the
-- caller sets innodb_lock_wait_timeout instead). Returns what came of it ('ok', 'stale', 'foreign',
-- 'conflict'), and the version, token and issuer as they are now.
--
-- A put with an end deletes a few rows whose ends are over: more than it adds, so that they do not
-- pile up. Its version must be larger than that of a cell of this name that was deleted: it is at
-- least the time. No cell has a million puts in each second, so its versions stay behind the clock.
CREATE /*M!100103 OR REPLACE */ PROCEDURE stile_cell_write(
    p_verb VARCHAR(24) CHARACTER SET ascii, p_key VARBINARY(512), p_value MEDIUMBLOB,
    p_version BIGINT UNSIGNED, p_token BIGINT, p_issuer VARBINARY(600), p_strict BOOLEAN,
    p_wait BOOLEAN
) SQL SECURITY INVOKER
BEGIN
    DECLARE v_status VARCHAR(8) CHARACTER SET ascii;
    DECLARE v_there, v_ended BOOLEAN;
    DECLARE v_version BIGINT UNSIGNED;
    DECLARE v_token, v_highest, v_keep_ms BIGINT;
    DECLARE v_issuer VARBINARY(600);
    DECLARE v_over VARBINARY(512);
    DECLARE v_left INT DEFAULT 4;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        ROLLBACK AND NO CHAIN NO RELEASE;
        RESIGNAL;
    END;
    IF p_verb LIKE 'put %' THEN
        SET v_keep_ms = SUBSTRING(p_verb, 5), p_verb = 'put';
    END IF;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    IF NOT p_wait THEN
        SELECT g.token INTO v_token FROM stile_guard g WHERE g.resource = p_key
        FOR UPDATE /*!80001 NOWAIT */;
    END IF;
    SELECT g.token, g.issuer, g.version, g.value IS NOT NULL, COALESCE(g.ends_at <= UTC_TIMESTAMP(6), FALSE)
    INTO v_token, v_issuer, v_version, v_there, v_ended
    FROM stile_guard g WHERE g.resource = p_key FOR UPDATE;
    IF v_version IS NULL THEN
        CALL stile_guard_add(p_key);
        SELECT g.token, g.issuer, g.version, g.value IS NOT NULL, FALSE
        INTO v_token, v_issuer, v_version, v_there, v_ended
        FROM stile_guard g WHERE g.resource = p_key FOR UPDATE;
    END IF;
    IF v_ended THEN
        SET v_token = 0, v_issuer = '', v_there = FALSE;
    END IF;
    SET v_highest = v_token;
    IF v_token = 0 AND p_token > 0 THEN
        SELECT MAX(f.token) INTO v_highest FROM stile_guard_floor f
        WHERE f.issuer IN ('', p_issuer) OR p_issuer = '' LOCK IN SHARE MODE;
    END IF;
    SET v_status = CASE
        WHEN p_verb = 'reset' THEN 'ok'
        WHEN p_token > 0 AND p_issuer <> '' AND v_issuer <> '' AND p_issuer <> v_issuer THEN 'foreign'
        WHEN p_token < v_highest OR p_strict AND p_token > 0 AND p_token = v_highest THEN 'stale'
        WHEN p_version <> IF(v_there, v_version, 0) THEN 'conflict'
        ELSE 'ok'
    END;
    IF v_status <> 'ok' THEN
        SET v_token = v_highest;
    ELSE
        SET v_issuer = IF(p_verb = 'reset' OR p_token > 0 AND p_issuer <> '', p_issuer, v_issuer),
            v_token = IF(p_verb = 'reset', p_token, GREATEST(v_token, p_token));
    END IF;
    -- MariaDB 10.11 cannot commit after it has skipped a row while innodb_lock_wait_timeout is 0.
    WHILE v_keep_ms IS NOT NULL AND v_status = 'ok' AND v_left > 0 DO
        SET v_over = NULL;
        SELECT g.resource INTO v_over FROM stile_guard g
        WHERE g.ends_at <= UTC_TIMESTAMP(6) AND g.resource <> p_key
        ORDER BY g.ends_at LIMIT 1 FOR UPDATE /*M!100600 SKIP LOCKED */ /*!80001 SKIP LOCKED */;
        DELETE FROM stile_guard WHERE resource = v_over;
        SET v_left = IF(v_over IS NULL, 0, v_left - 1);
    END WHILE;
    IF v_status = 'ok' AND p_verb = 'put' THEN
        SET v_version = GREATEST(v_version + 1, IF(v_keep_ms IS NULL, 0,
                TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))), v_there = TRUE;
        UPDATE stile_guard
        SET value = p_value, version = v_version, removed_at = NULL, issuer = v_issuer,
            since = IF(token = v_token, since, UTC_TIMESTAMP(6)), token = v_token,
            ends_at = UTC_TIMESTAMP(6) + INTERVAL v_keep_ms * 1000 MICROSECOND
        WHERE resource = p_key;
    ELSEIF v_status = 'ok' AND (p_verb <> 'remove' OR v_there OR v_token > 0) THEN
        IF p_verb = 'remove' THEN
            SET v_there = FALSE;
            UPDATE stile_guard
            SET value = NULL, removed_at = COALESCE(removed_at, UTC_TIMESTAMP(6))
            WHERE resource = p_key;
        END IF;
        UPDATE stile_guard
        SET since = IF(token = v_token, since, UTC_TIMESTAMP(6)), token = v_token, issuer = v_issuer,
            value = IF(v_ended, NULL, value), ends_at = IF(v_ended, NULL, ends_at)
        WHERE resource = p_key;
    ELSE
        ROLLBACK AND NO CHAIN NO RELEASE; -- a row that was added, too
    END IF;
    COMMIT AND NO CHAIN NO RELEASE;
    SELECT v_status, IF(v_there, v_version, 0), v_token, v_issuer;
END//

DELIMITER ;

-- All guards, for administrators.
CREATE OR REPLACE SQL SECURITY INVOKER VIEW stile_guards AS
SELECT CONVERT(resource USING utf8mb4) AS resource, token,
       CONVERT(issuer USING utf8mb4) AS issuer, since, removed_at, LENGTH(value) AS cell_size, ends_at
FROM stile_guard
WHERE ends_at IS NULL OR ends_at > UTC_TIMESTAMP(6);

SET SESSION sql_mode = @stile_sql_mode;
