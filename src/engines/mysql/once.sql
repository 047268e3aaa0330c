-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- once for MySQL and MariaDB: a transaction's work is done once for each key, and its result is stored
-- with it in the same commit. It needs nothing else of stile, and is safe to run again.
--
--     START TRANSACTION;
--     CALL stile_once('order-17', 'sha256 of the request', 'customer 4', NULL);
--     run = 1: this transaction is the first. It does the work, and ends with
--         CALL stile_once_done('order-17', '{"paid": 5}', 'customer 4'); COMMIT;
--     run = 0: the work is done. result is what the first one has stored.
--
-- While the first transaction is open, other callers with the same key and scope wait, at most
-- innodb_lock_wait_timeout (error 1205). If it commits, they get its result; if it is rolled back,
-- one of them becomes the first, and others that waited may get a deadlock (1213). After any error,
-- roll back; after these two, repeat the transaction.
--
-- SQLSTATE SG005 (error 31005): this key was used with another fingerprint. SG006 (31006): a
-- transaction was told to run and has committed without a result. No server here can refuse that
-- commit, so the key is refused from then on. SG004 (31004): misuse.
--
-- Users need EXECUTE on stile_once (or stile_once_begin) and stile_once_done, and nothing on the table:
-- the procedures run with the privileges of the user that has created them.
--
-- How it works. The INSERT of a key that another transaction has inserted waits for the end of that
-- transaction, and on a duplicate leaves a shared lock on the row. InnoDB reads the row's latest
-- version under this lock, whatever the isolation level, and takes no snapshot for it: under
-- REPEATABLE READ, too, a SELECT after stile_once sees all that was committed before.

-- A procedure keeps the mode it was created in. In this one, nothing is cut to fit.
SET @stile_sql_mode = @@SESSION.sql_mode, SESSION sql_mode = 'STRICT_ALL_TABLES';

-- done_at NULL: the transaction that has inserted the row, or taken it over, is open; or it has
-- committed without a result. owner: its connection. Times are UTC.
CREATE TABLE IF NOT EXISTS stile_once_key (
    scope VARBINARY(512) NOT NULL,
    once_key VARBINARY(512) NOT NULL,
    fingerprint VARBINARY(512) NOT NULL,
    owner BIGINT UNSIGNED NOT NULL,
    keep_s INT UNSIGNED NOT NULL,
    done_at DATETIME(6),
    expires_at DATETIME(6),
    result MEDIUMTEXT CHARACTER SET utf8mb4,
    PRIMARY KEY (scope, once_key),
    KEY expires (expires_at)
) ENGINE=InnoDB COMMENT='results by key: stile_once';

-- MySQL cannot replace a procedure, and dropping it revokes the privileges on it: grant EXECUTE on
-- the database there. `stile setup` leaves these lines out on MariaDB.
DROP PROCEDURE IF EXISTS stile_once_refuse;
DROP PROCEDURE IF EXISTS stile_once_check;
DROP PROCEDURE IF EXISTS stile_once_begin;
DROP PROCEDURE IF EXISTS stile_once;
DROP PROCEDURE IF EXISTS stile_once_done;
DROP PROCEDURE IF EXISTS stile_once_prune;

DELIMITER //

-- ---- what is refused ----

-- Ends with the error. A message has room for 128 characters: a long key is cut, and one that is not
-- UTF-8 is left out.
CREATE /*M!100103 OR REPLACE */ PROCEDURE stile_once_refuse(
    p_key VARBINARY(512), p_why VARCHAR(16) CHARACTER SET ascii
) SQL SECURITY DEFINER
BEGIN
    DECLARE v_name VARCHAR(512) CHARACTER SET utf8mb4;
    DECLARE v_text VARCHAR(128) CHARACTER SET utf8mb4;
    DECLARE CONTINUE HANDLER FOR 1300 BEGIN END;
    SET v_name = CONVERT(p_key USING utf8mb4);
    SET v_name = COALESCE(IF(CHAR_LENGTH(v_name) > 30, CONCAT(LEFT(v_name, 27), '...'), v_name), '?');
    IF p_why = 'fingerprint' THEN
        SET v_text = CONCAT('stile_once ', v_name,
                            ' was used with another fingerprint: a new request needs a new key');
        SIGNAL SQLSTATE 'SG005' SET MYSQL_ERRNO = 31005, MESSAGE_TEXT = v_text;
    ELSEIF p_why = 'unfinished' THEN
        SET v_text = CONCAT('stile_once ', v_name,
                            ' has no result: CALL stile_once_done before the COMMIT of its work');
        SIGNAL SQLSTATE 'SG006' SET MYSQL_ERRNO = 31006, MESSAGE_TEXT = v_text;
    END IF;
    SET v_text = CONCAT('stile_once ', v_name,
                        ' was not called first in this transaction, or was not told to run');
    SIGNAL SQLSTATE 'SG004' SET MYSQL_ERRNO = 31004, MESSAGE_TEXT = v_text;
END//

-- Also refuses a call that would be a transaction of its own, with the work outside. MySQL does not
-- say whether a transaction is open; without one, a savepoint is gone at once.
CREATE /*M!100103 OR REPLACE */ PROCEDURE stile_once_check(
    p_key VARBINARY(2048), p_fingerprint VARBINARY(2048), p_scope VARBINARY(2048),
    p_keep_s INT UNSIGNED
) SQL SECURITY DEFINER
BEGIN
    DECLARE v_text VARCHAR(128) CHARACTER SET utf8mb4 DEFAULT CASE
        WHEN p_key IS NULL OR p_key = '' OR LENGTH(p_key) > 512
             OR HEX(p_key) REGEXP '^([0-9A-F]{2})*([01][0-9A-F]|7F)' THEN
            'a key has 1 to 512 bytes, without control characters'
        WHEN p_scope IS NULL OR LENGTH(p_scope) > 512
             OR HEX(p_scope) REGEXP '^([0-9A-F]{2})*([01][0-9A-F]|7F)' THEN
            'a scope has at most 512 bytes, without control characters, and may be empty'
        WHEN LENGTH(p_fingerprint) > 512 THEN
            'a fingerprint has at most 512 bytes: pass a hash of the request'
        WHEN p_keep_s = 0 OR p_keep_s > 3155760000 THEN
            'a result is kept for at least a second, and at most 100 years'
    END;
    DECLARE EXIT HANDLER FOR 1305
        SIGNAL SQLSTATE 'SG004' SET MYSQL_ERRNO = 31004,
            MESSAGE_TEXT = 'no transaction is open: START TRANSACTION first';
    IF v_text IS NOT NULL THEN
        SIGNAL SQLSTATE 'SG004' SET MYSQL_ERRNO = 31004, MESSAGE_TEXT = v_text;
    END IF;
    SAVEPOINT stile_once_probe;
    RELEASE SAVEPOINT stile_once_probe;
END//

-- ---- in the caller's transaction ----

-- p_run TRUE: do the work, then call stile_once_done. p_run FALSE: p_result is that of the first
-- caller. p_fingerprint may be NULL, which is one of its own; p_scope may be ''. p_keep_s: for how many
-- seconds the result is stored, from stile_once_done on (NULL: a day); after that the key may run
-- again. INSERT comes without a SELECT before it: two transactions that had both looked for a missing
-- row would block each other.
CREATE /*M!100103 OR REPLACE */ PROCEDURE stile_once_begin(
    p_key VARBINARY(2048), p_fingerprint VARBINARY(2048), p_scope VARBINARY(2048),
    p_keep_s INT UNSIGNED, OUT p_run BOOLEAN, OUT p_result MEDIUMTEXT CHARACTER SET utf8mb4
) SQL SECURITY DEFINER
BEGIN
    DECLARE v_expired, v_done, v_differs BOOLEAN;
    DECLARE v_keep_s INT UNSIGNED DEFAULT COALESCE(p_keep_s, 86400);
    CALL stile_once_check(p_key, p_fingerprint, p_scope, v_keep_s);
    SET p_run = TRUE, p_result = NULL, p_fingerprint = COALESCE(p_fingerprint, '');
    BEGIN
        DECLARE CONTINUE HANDLER FOR 1062 SET p_run = FALSE;
        INSERT INTO stile_once_key (scope, once_key, fingerprint, owner, keep_s)
        VALUES (p_scope, p_key, p_fingerprint, CONNECTION_ID(), v_keep_s);
    END;
    IF NOT p_run THEN
        SELECT k.done_at IS NOT NULL, COALESCE(k.expires_at <= UTC_TIMESTAMP(6), FALSE),
               k.fingerprint <> p_fingerprint, k.result
        INTO v_done, v_expired, v_differs, p_result
        FROM stile_once_key k WHERE k.scope = p_scope AND k.once_key = p_key LOCK IN SHARE MODE;
        IF v_expired THEN
            UPDATE stile_once_key
            SET fingerprint = p_fingerprint, owner = CONNECTION_ID(), keep_s = v_keep_s,
                done_at = NULL, expires_at = NULL, result = NULL
            WHERE scope = p_scope AND once_key = p_key;
            SET p_run = TRUE, p_result = NULL;
        ELSEIF v_done IS NOT TRUE THEN
            CALL stile_once_refuse(p_key, 'unfinished');
        ELSEIF v_differs THEN
            CALL stile_once_refuse(p_key, 'fingerprint');
        END IF;
    END IF;
END//

-- The same, with run and result as a row: one round trip for a driver.
CREATE /*M!100103 OR REPLACE */ PROCEDURE stile_once(
    p_key VARBINARY(2048), p_fingerprint VARBINARY(2048), p_scope VARBINARY(2048),
    p_keep_s INT UNSIGNED
) SQL SECURITY DEFINER
BEGIN
    DECLARE v_run BOOLEAN;
    DECLARE v_result MEDIUMTEXT CHARACTER SET utf8mb4;
    CALL stile_once_begin(p_key, p_fingerprint, p_scope, p_keep_s, v_run, v_result);
    SELECT v_run AS run, v_result AS result;
END//

-- Stores the result, in the transaction that was told to run. Any text; JSON is usual.
CREATE /*M!100103 OR REPLACE */ PROCEDURE stile_once_done(
    p_key VARBINARY(2048), p_result LONGTEXT CHARACTER SET utf8mb4, p_scope VARBINARY(2048)
) SQL SECURITY DEFINER
BEGIN
    CALL stile_once_check(p_key, NULL, p_scope, NULL);
    IF LENGTH(p_result) > 1048576 THEN
        SIGNAL SQLSTATE 'SG004' SET MYSQL_ERRNO = 31004, MESSAGE_TEXT = 'a result has at most 1 MiB';
    END IF;
    UPDATE stile_once_key
    SET result = p_result, done_at = UTC_TIMESTAMP(6),
        expires_at = UTC_TIMESTAMP(6) + INTERVAL keep_s SECOND
    WHERE scope = p_scope AND once_key = p_key AND done_at IS NULL AND owner = CONNECTION_ID();
    IF ROW_COUNT() = 0 THEN
        CALL stile_once_refuse(p_key, 'not run');
    END IF;
END//

-- ---- managing ----

-- Deletes results that have expired, at most so many, in a transaction of its own, and returns how
-- many. Repeat it until it returns 0.
CREATE /*M!100103 OR REPLACE */ PROCEDURE stile_once_prune(p_most INT UNSIGNED) SQL SECURITY DEFINER
BEGIN
    DECLARE v_deleted BIGINT;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        ROLLBACK AND NO CHAIN NO RELEASE;
        RESIGNAL;
    END;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    DELETE FROM stile_once_key WHERE expires_at <= UTC_TIMESTAMP(6) ORDER BY expires_at LIMIT p_most;
    SET v_deleted = ROW_COUNT();
    COMMIT AND NO CHAIN NO RELEASE;
    SELECT v_deleted AS deleted;
END//

DELIMITER ;

SET SESSION sql_mode = @stile_sql_mode;
