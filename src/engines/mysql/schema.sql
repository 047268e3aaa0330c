-- SPDX-FileCopyrightText: the stile authors
-- SPDX-License-Identifier: Apache-2.0
-- The tables of stile, in the database that the URL names. Each part is safe to run again. Users
-- need SELECT, INSERT, UPDATE and DELETE on the tables stile_*, and EXECUTE on the procedures
-- stile_*.

CREATE TABLE IF NOT EXISTS stile_version (
    version INT UNSIGNED NOT NULL PRIMARY KEY
) ENGINE=InnoDB COMMENT='locks with fencing tokens: stile setup';

-- One row per name that was held for a while: its holder, or the last one that was. Whether it is held
-- right now is known to IS_USED_LOCK(lock_name), and to the view stile_locks. Times are UTC. In a database
-- whose tokens wait for the disk (stile_make_tokens()), the row counts them. Elsewhere `token` is called
-- last_token, so that no client from before can count there.
CREATE TABLE IF NOT EXISTS stile_lock (
    name VARBINARY(512) NOT NULL PRIMARY KEY,
    lock_name VARBINARY(192) NOT NULL,
    token BIGINT UNSIGNED NOT NULL,
    owner VARCHAR(16) CHARACTER SET ascii NOT NULL,
    host VARCHAR(64) CHARACTER SET ascii NOT NULL,
    pid BIGINT NOT NULL,
    command VARCHAR(255) CHARACTER SET ascii NOT NULL,
    since DATETIME(6) NOT NULL,
    backend BIGINT UNSIGNED,
    hold_until DATETIME(6),
    delay_ms BIGINT UNSIGNED
) ENGINE=InnoDB;

-- Tokens of names whose rows were deleted (CALL stile_cleanup(30)) are below this, so that none is
-- ever repeated.
CREATE TABLE IF NOT EXISTS stile_floor (
    one TINYINT NOT NULL PRIMARY KEY,
    token BIGINT UNSIGNED NOT NULL
) ENGINE=InnoDB;
INSERT IGNORE INTO stile_floor VALUES (1, 0);

-- ---- tokens of GET_LOCK (docs/guarantees.md) ----

-- A token is base + UUID_SHORT() - first: the server counts in memory, from its own start. `base` and
-- `bound` are on disk: no token above `bound` is reported. `holds`: 0 as long as no lock of this database
-- was ever kept back (hold_until, delay_ms); 1: all clients are about to look for that; 2: they do.
CREATE TABLE IF NOT EXISTS stile_epoch (
    one TINYINT NOT NULL PRIMARY KEY,
    base BIGINT UNSIGNED NOT NULL,
    bound BIGINT UNSIGNED NOT NULL,
    holds TINYINT NOT NULL
) ENGINE=InnoDB;

-- Which server began which epoch in its present life: a server that starts has no rows here. Rows are only
-- added, one per epoch. A replica that was restarted lacks rows of its primary, and could not follow a change of
-- them.
CREATE TABLE IF NOT EXISTS stile_life (
    base BIGINT UNSIGNED NOT NULL,
    server BIGINT UNSIGNED NOT NULL,
    first BIGINT UNSIGNED NOT NULL
) ENGINE=MEMORY;

-- ---- mode=table: leases in rows, on the database's clock ----

-- One row per name: its counter. Any change of a name writes this row first, so that there is one
-- at a time; in a Galera cluster the others fail when they commit.
CREATE TABLE IF NOT EXISTS stile_counter (
    name VARBINARY(512) NOT NULL PRIMARY KEY,
    token BIGINT UNSIGNED NOT NULL,
    turns BIGINT UNSIGNED NOT NULL
) ENGINE=InnoDB;

-- One row per claim that holds or waits.
CREATE TABLE IF NOT EXISTS stile_claim (
    owner VARCHAR(33) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    name VARBINARY(512) NOT NULL,
    mode ENUM('exclusive', 'shared', 'slots') NOT NULL,
    slots INT UNSIGNED NOT NULL,
    held BOOLEAN NOT NULL,
    ghost BOOLEAN NOT NULL DEFAULT FALSE, -- without a holder: keeps the name until its end
    confirmed BOOLEAN NOT NULL,           -- its owner knows
    token BIGINT UNSIGNED NOT NULL,       -- 0 while it waits
    place BIGINT UNSIGNED NOT NULL,
    ttl_ms BIGINT UNSIGNED NOT NULL,
    hold_ms BIGINT UNSIGNED,
    delay_ms BIGINT UNSIGNED,
    since DATETIME(6) NOT NULL,
    expires_at DATETIME(6) NOT NULL,
    hold_until DATETIME(6),
    bell VARCHAR(16) CHARACTER SET ascii, -- the session to wake when it is granted
    host VARCHAR(64) CHARACTER SET ascii NOT NULL,
    pid BIGINT NOT NULL,
    command VARCHAR(255) CHARACTER SET ascii NOT NULL,
    KEY in_line (name, place),
    KEY by_bell (bell)
) ENGINE=InnoDB;

-- ---- mode=row: SELECT ... FOR UPDATE ----

-- The rows that are locked.
CREATE TABLE IF NOT EXISTS stile_row (
    name VARBINARY(512) NOT NULL PRIMARY KEY
) ENGINE=InnoDB;

-- One row per name: its counter, and its last holder.
CREATE TABLE IF NOT EXISTS stile_row_count (
    name VARBINARY(512) NOT NULL PRIMARY KEY,
    token BIGINT UNSIGNED NOT NULL,
    shared BOOLEAN NOT NULL,
    owner VARCHAR(16) CHARACTER SET ascii NOT NULL,
    host VARCHAR(64) CHARACTER SET ascii NOT NULL,
    pid BIGINT NOT NULL,
    command VARCHAR(255) CHARACTER SET ascii NOT NULL,
    since DATETIME(6) NOT NULL,
    hold_until DATETIME(6),
    delay_ms BIGINT UNSIGNED
) ENGINE=InnoDB;

-- One row per session: its last claim, which is over unless the session has marked itself with the
-- lock CONCAT('stile row ', backend).
CREATE TABLE IF NOT EXISTS stile_row_claim (
    backend BIGINT UNSIGNED NOT NULL PRIMARY KEY,
    name VARBINARY(512) NOT NULL,
    shared BOOLEAN NOT NULL,
    held BOOLEAN NOT NULL,
    token BIGINT UNSIGNED NOT NULL,
    owner VARCHAR(16) CHARACTER SET ascii NOT NULL,
    host VARCHAR(64) CHARACTER SET ascii NOT NULL,
    pid BIGINT NOT NULL,
    command VARCHAR(255) CHARACTER SET ascii NOT NULL,
    since DATETIME(6) NOT NULL,
    KEY by_name (name)
) ENGINE=InnoDB;

-- ---- the last holder of each name ----

-- One row per name and mode, which has tokens of its own. The record says, separated by spaces: 1,
-- token, from, until (Unix milliseconds; 0: not yet), exit code, pid, host, command. It is for people
-- to read; one that was not replaced for 30 days is deleted.
CREATE TABLE IF NOT EXISTS stile_last_holder (
    name VARBINARY(512) NOT NULL,
    mode VARCHAR(144) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    token BIGINT UNSIGNED NOT NULL,
    record VARBINARY(1023) NOT NULL,
    stored_on DATE NOT NULL,
    PRIMARY KEY (name, mode),
    KEY by_age (stored_on)
) ENGINE=InnoDB;

-- MySQL cannot replace a procedure, and dropping it revokes the privileges on it: grant EXECUTE on
-- the database there. `stile setup` leaves these lines out on MariaDB.
DROP PROCEDURE IF EXISTS stile_begin_epoch;
DROP PROCEDURE IF EXISTS stile_use_holds;
DROP PROCEDURE IF EXISTS stile_make_tokens;
DROP PROCEDURE IF EXISTS stile_table_settle;
DROP PROCEDURE IF EXISTS stile_table_grant;
DROP PROCEDURE IF EXISTS stile_table_ring;
DROP PROCEDURE IF EXISTS stile_table_await;
DROP PROCEDURE IF EXISTS stile_table_claim;
DROP PROCEDURE IF EXISTS stile_table_release;
DROP PROCEDURE IF EXISTS stile_table_break;
DROP PROCEDURE IF EXISTS stile_row_grant;
DROP PROCEDURE IF EXISTS stile_row_let_go;
DROP PROCEDURE IF EXISTS stile_forget;
DROP PROCEDURE IF EXISTS stile_cleanup;
DROP PROCEDURE IF EXISTS stile_job_add;
DROP PROCEDURE IF EXISTS stile_job_retry;

DELIMITER //

-- Makes tokens available: more of this epoch if the server is in the life that began it, else the next
-- epoch. Clients draw for 100 ms after they have read an epoch. So the next one is readable 250 ms after the
-- one before it was last readable. A procedure that is killed leaves the lock: its caller releases that.
CREATE /*M!100103 OR REPLACE */ PROCEDURE stile_begin_epoch() SQL SECURITY INVOKER
BEGIN
    DECLARE v_lock VARCHAR(64) CHARACTER SET ascii DEFAULT CONCAT('stile epoch ', MD5(DATABASE()));
    DECLARE v_base, v_bound, v_first, v_drawn BIGINT UNSIGNED;
    -- A replica that repeats a statement has another number: what is written is this one.
    DECLARE v_server BIGINT UNSIGNED DEFAULT @@GLOBAL.server_id;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        ROLLBACK AND NO CHAIN NO RELEASE;
        DO RELEASE_LOCK(v_lock);
        RESIGNAL;
    END;
    IF NOT GET_LOCK(v_lock, 10) <=> 1 THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'another session has been beginning an epoch for 10 s';
    END IF;
    IF @@GLOBAL.read_only THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no epoch begins on a read-only server', MYSQL_ERRNO = 1290;
    END IF;
    START TRANSACTION;
    SELECT e.base, e.bound INTO v_base, v_bound FROM stile_epoch e WHERE e.one = 1 FOR UPDATE;
    IF v_base IS NULL THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'stile_epoch has no row: run `stile setup URL`';
    END IF;
    SELECT MAX(l.first) INTO v_first FROM stile_life l
    WHERE l.base = v_base AND l.server = v_server;
    SET v_drawn = UUID_SHORT();
    -- In another life, or another server, these numbers begin elsewhere: the second of the start is in front of
    -- the lower 24 bits. After 16 million draws it looks like another life, which costs an epoch and no more.
    IF v_first <= v_drawn AND v_drawn >> 24 = v_first >> 24 THEN
        IF v_drawn - v_first + 4096 > v_bound - v_base THEN
            UPDATE stile_epoch SET bound = v_base + (v_drawn - v_first) + 1048576 WHERE one = 1;
        END IF;
        COMMIT AND NO CHAIN NO RELEASE;
    ELSE
        SET v_base = GREATEST(v_bound + 1, (UNIX_TIMESTAMP() - 1577836800) * 1048576);
        IF v_base > 9223372036853727232 THEN
            SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'there are no tokens left below 2^63';
        END IF;
        UPDATE stile_epoch SET base = v_base, bound = v_base + 1048575 WHERE one = 1;
        COMMIT AND NO CHAIN NO RELEASE;
        IF SLEEP(0.25) <> 0 THEN
            SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'the wait for the next epoch was ended', MYSQL_ERRNO = 1317;
        END IF;
        SET v_first = UUID_SHORT();
        INSERT INTO stile_life (base, server, first) VALUES (v_base, v_server, v_first);
    END IF;
    DO RELEASE_LOCK(v_lock);
END//

-- Before the first lock of this database is kept back: from then on every grant looks for that. As above,
-- clients know a smaller number for 100 ms after it was last readable.
CREATE /*M!100103 OR REPLACE */ PROCEDURE stile_use_holds() SQL SECURITY INVOKER
BEGIN
    UPDATE stile_epoch SET holds = 1 WHERE one = 1 AND holds = 0;
    IF SLEEP(0.25) <> 0 THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'the wait for other clients was ended', MYSQL_ERRNO = 1317;
    END IF;
    UPDATE stile_epoch SET holds = 2 WHERE one = 1;
END//

-- Deletes expired claims; one whose hold lasts on stays as a ghost.
CREATE /*M!100103 OR REPLACE */ PROCEDURE stile_table_settle(p_name VARBINARY(512)) SQL SECURITY INVOKER
BEGIN
    DECLARE v_now DATETIME(6) DEFAULT UTC_TIMESTAMP(6); -- once: what ends in between has no ghost
    -- Looking first: the statements below would lock every row of a long queue for a moment.
    IF EXISTS (SELECT 1 FROM stile_claim c WHERE c.name = p_name AND c.expires_at <= v_now) THEN
        UPDATE stile_claim
        SET ghost = TRUE, owner = CONCAT('~', owner),
            expires_at = GREATEST(expires_at + INTERVAL 1000 * COALESCE(delay_ms, 0) MICROSECOND,
                                  COALESCE(hold_until, expires_at)),
            hold_until = NULL, delay_ms = NULL
        WHERE name = p_name AND held AND confirmed AND NOT ghost AND expires_at <= v_now
          AND (delay_ms IS NOT NULL OR hold_until > v_now);
        DELETE FROM stile_claim WHERE name = p_name AND expires_at <= v_now;
    END IF;
END//

-- Wakes the clients that were granted a lock, by ending the sleep of the session that has the
-- client's lock, and counts them. It runs with its creator's privileges, so that a client can be woken by
-- another user: only a session with a lock of that name is hit. Its callers have committed, and ignore an error.
CREATE /*M!100103 OR REPLACE */ PROCEDURE stile_table_ring() SQL SECURITY DEFINER
BEGIN
    DECLARE v_session BIGINT UNSIGNED;
    DECLARE v_failed BOOLEAN;
    DECLARE CONTINUE HANDLER FOR SQLEXCEPTION SET v_failed = TRUE;
    SET @stile_rung = 0;
    WHILE LENGTH(@stile_bells) > 0 DO
        SET v_session = IS_USED_LOCK(CONCAT('stile bell ', LEFT(@stile_bells, 16))), v_failed = FALSE;
        SET @stile_bells = SUBSTRING(@stile_bells, 17);
        IF v_session <> CONNECTION_ID() THEN
            KILL QUERY v_session;
            SET @stile_rung = @stile_rung + IF(v_failed, 0, 1);
        END IF;
    END WHILE;
END//

-- Sleeps until stile_table_ring() ends it, or the lock p_sleep is free, or p_seconds have passed: the column is
-- what GET_LOCK returns. Where claims of this client were granted, and not confirmed yet, it returns at once:
-- NULL, and their owners. A ring before this call ended nothing, but the grant was committed before it, and is
-- seen here. A ring during this call ends it, whatever it does. While it sleeps it uses no table.
CREATE /*M!100103 OR REPLACE */ PROCEDURE stile_table_await(
    p_bell VARCHAR(16) CHARACTER SET ascii, p_sleep VARCHAR(64) CHARACTER SET ascii, p_seconds INT UNSIGNED
) SQL SECURITY INVOKER
BEGIN
    DECLARE v_owners MEDIUMTEXT CHARACTER SET ascii;
    SELECT GROUP_CONCAT(c.owner SEPARATOR ' ') INTO v_owners FROM stile_claim c
    WHERE c.bell = p_bell AND c.held AND NOT c.confirmed AND c.expires_at > UTC_TIMESTAMP(6);
    IF v_owners IS NULL THEN
        SELECT GET_LOCK(p_sleep, p_seconds);
    ELSE
        SELECT NULL, v_owners;
    END IF;
END//

-- Grants the lock to the next waiter, and to all that may share it. Those other than the caller
-- have a second to confirm, and are noted to be woken after the commit.
CREATE /*M!100103 OR REPLACE */ PROCEDURE stile_table_grant(p_name VARBINARY(512), p_me VARCHAR(33)) SQL SECURITY INVOKER
BEGIN
    DECLARE v_owner VARCHAR(33) CHARACTER SET ascii COLLATE ascii_bin;
    DECLARE v_mode, v_bell VARCHAR(16) CHARACTER SET ascii;
    DECLARE v_slots, v_held, v_same INT UNSIGNED;
    DECLARE v_ttl_ms BIGINT UNSIGNED;
    DECLARE v_now DATETIME(6);
    SET @stile_bells = COALESCE(@stile_bells, '');
    next: LOOP
        SET v_now = UTC_TIMESTAMP(6), v_owner = NULL;
        SELECT c.owner, c.mode, c.slots, IF(c.owner = p_me, c.ttl_ms, 1000),
               IF(c.owner = p_me, '', COALESCE(c.bell, ''))
        INTO v_owner, v_mode, v_slots, v_ttl_ms, v_bell
        FROM stile_claim c WHERE c.name = p_name AND NOT c.held ORDER BY c.place LIMIT 1;
        IF v_owner IS NULL THEN
            LEAVE next;
        END IF;
        SELECT COUNT(*), COALESCE(SUM(c.mode = v_mode), 0) INTO v_held, v_same
        FROM stile_claim c WHERE c.name = p_name AND c.held;
        IF v_held > 0 AND (v_mode = 'exclusive' OR v_same < v_held
                           OR v_mode = 'slots' AND v_held >= v_slots) THEN
            LEAVE next;
        END IF;
        UPDATE stile_counter SET token = token + 1 WHERE name = p_name;
        UPDATE stile_claim c JOIN stile_counter n ON n.name = c.name
        SET c.held = TRUE, c.token = n.token, c.since = v_now, c.confirmed = (c.owner = p_me),
            c.expires_at = v_now + INTERVAL 1000 * v_ttl_ms MICROSECOND,
            c.hold_until = IF(c.owner = p_me, v_now + INTERVAL 1000 * c.hold_ms MICROSECOND, NULL)
        WHERE c.owner = v_owner;
        SET @stile_bells = CONCAT(@stile_bells, v_bell);
        IF v_mode = 'exclusive' THEN
            LEAVE next;
        END IF;
    END LOOP;
END//

-- "g TOKEN": granted; "b MS": held by others for about that long. A repeated call with the same
-- owner keeps its place, and confirms a grant that was made meanwhile.
CREATE /*M!100103 OR REPLACE */ PROCEDURE stile_table_claim(
    p_name VARBINARY(512), p_owner VARCHAR(33) CHARACTER SET ascii,
    p_mode VARCHAR(16) CHARACTER SET ascii, p_slots INT UNSIGNED, p_ttl_ms BIGINT UNSIGNED,
    p_hold_ms BIGINT UNSIGNED, p_delay_ms BIGINT UNSIGNED, p_wait BOOLEAN,
    p_bell VARCHAR(16) CHARACTER SET ascii, p_host VARBINARY(64), p_pid BIGINT,
    p_command VARBINARY(255)
) SQL SECURITY INVOKER
claim: BEGIN
    DECLARE v_rows, v_over, v_mine INT UNSIGNED DEFAULT 0;
    DECLARE v_token, v_turn, v_left BIGINT UNSIGNED;
    DECLARE v_now, v_end DATETIME(6);
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        ROLLBACK AND NO CHAIN NO RELEASE;
        RESIGNAL;
    END;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    SET @stile_bells = '';
    START TRANSACTION;
    -- A confirmation changes its own row only, as a renewal does: nobody else has to be kept out.
    SET v_now = UTC_TIMESTAMP(6);
    UPDATE stile_claim c
    SET c.confirmed = TRUE, c.bell = p_bell,
        c.hold_until = COALESCE(c.hold_until, v_now + INTERVAL 1000 * c.hold_ms MICROSECOND),
        c.expires_at = v_now + INTERVAL 1000 * p_ttl_ms MICROSECOND
    WHERE c.owner = p_owner AND c.name = p_name AND c.held AND c.expires_at > v_now;
    IF ROW_COUNT() > 0 THEN
        SELECT c.token INTO v_token FROM stile_claim c WHERE c.owner = p_owner;
        COMMIT AND NO CHAIN NO RELEASE;
        SELECT CONCAT('g ', v_token);
        LEAVE claim;
    END IF;
    UPDATE stile_counter SET turns = turns + 1 WHERE name = p_name;
    IF ROW_COUNT() = 0 THEN
        SELECT f.token INTO v_token FROM stile_floor f WHERE f.one = 1 LOCK IN SHARE MODE;
        INSERT INTO stile_counter (name, token, turns) VALUES (p_name, v_token, 1)
        ON DUPLICATE KEY UPDATE turns = turns + 1;
    END IF;
    SELECT n.token, n.turns INTO v_token, v_turn FROM stile_counter n WHERE n.name = p_name;
    SET v_now = UTC_TIMESTAMP(6);
    SELECT COUNT(*), COALESCE(SUM(c.expires_at <= v_now), 0), COALESCE(SUM(c.owner = p_owner), 0)
    INTO v_rows, v_over, v_mine FROM stile_claim c WHERE c.name = p_name;
    IF v_over > 0 THEN
        CALL stile_table_settle(p_name);
    END IF;
    IF v_mine > 0 THEN
        UPDATE stile_claim c
        SET c.confirmed = c.held, c.bell = p_bell,
            c.hold_until = COALESCE(c.hold_until,
                IF(c.held, v_now + INTERVAL 1000 * c.hold_ms MICROSECOND, NULL)),
            c.expires_at = v_now + INTERVAL 1000 * p_ttl_ms MICROSECOND
        WHERE c.owner = p_owner AND c.name = p_name;
        SET v_mine = ROW_COUNT();
    END IF;
    IF v_mine = 0 THEN
        INSERT INTO stile_claim (owner, name, mode, slots, held, confirmed, token, place, ttl_ms,
                                 hold_ms, delay_ms, since, expires_at, hold_until, bell, host, pid,
                                 command)
        VALUES (p_owner, p_name, p_mode, p_slots, v_rows = 0, v_rows = 0,
                IF(v_rows = 0, v_token + 1, 0), v_turn, p_ttl_ms, p_hold_ms, p_delay_ms, v_now,
                v_now + INTERVAL 1000 * p_ttl_ms MICROSECOND,
                IF(v_rows = 0, v_now + INTERVAL 1000 * p_hold_ms MICROSECOND, NULL), p_bell, p_host,
                p_pid, p_command);
    END IF;
    IF v_rows = 0 THEN
        SET v_token = v_token + 1;
        UPDATE stile_counter SET token = v_token WHERE name = p_name;
    ELSE
        CALL stile_table_grant(p_name, p_owner);
        SET v_token = NULL;
        SELECT c.token INTO v_token FROM stile_claim c WHERE c.owner = p_owner AND c.held;
        IF v_token IS NULL AND NOT p_wait THEN
            DELETE FROM stile_claim WHERE owner = p_owner;
            CALL stile_table_grant(p_name, p_owner);
        END IF;
        SELECT MIN(c.expires_at) INTO v_end FROM stile_claim c WHERE c.name = p_name AND c.held;
    END IF;
    COMMIT AND NO CHAIN NO RELEASE;
    BEGIN
        DECLARE CONTINUE HANDLER FOR SQLEXCEPTION BEGIN END;
        CALL stile_table_ring();
    END;
    SET v_left = GREATEST(COALESCE(TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), v_end), 0), 1000);
    SELECT IF(v_token IS NULL, CONCAT('b ', (v_left + 999) DIV 1000), CONCAT('g ', v_token));
END//

-- Releases or withdraws a claim. Returns whether there was one.
CREATE /*M!100103 OR REPLACE */ PROCEDURE stile_table_release(
    p_name VARBINARY(512), p_owner VARCHAR(33) CHARACTER SET ascii, p_unused BOOLEAN
) SQL SECURITY INVOKER
BEGIN
    DECLARE v_there INT DEFAULT 0;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        ROLLBACK AND NO CHAIN NO RELEASE;
        RESIGNAL;
    END;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    SET @stile_bells = '';
    START TRANSACTION;
    UPDATE stile_counter SET turns = turns + 1 WHERE name = p_name;
    CALL stile_table_settle(p_name);
    IF NOT p_unused THEN
        UPDATE stile_claim
        SET ghost = TRUE, owner = CONCAT('~', owner), expires_at = hold_until, hold_until = NULL,
            delay_ms = NULL
        WHERE owner = p_owner AND name = p_name AND held AND hold_until > UTC_TIMESTAMP(6);
        SET v_there = ROW_COUNT();
    END IF;
    IF v_there = 0 THEN
        DELETE FROM stile_claim WHERE owner = p_owner AND name = p_name;
        SET v_there = ROW_COUNT();
    END IF;
    IF v_there = 0 THEN
        -- Perhaps it is repeated, and was ended after its commit: then it has woken nobody yet.
        SELECT GROUP_CONCAT(c.bell SEPARATOR '') INTO @stile_bells FROM stile_claim c
        WHERE c.name = p_name AND c.held AND NOT c.confirmed;
    END IF;
    CALL stile_table_grant(p_name, '');
    COMMIT AND NO CHAIN NO RELEASE;
    BEGIN
        DECLARE CONTINUE HANDLER FOR SQLEXCEPTION BEGIN END;
        CALL stile_table_ring();
    END;
    SELECT IF(v_there, 't', 'f');
END//

-- Returns how many grants were broken, and their owners; 0: none has that token; -1: there is no
-- holder.
CREATE /*M!100103 OR REPLACE */ PROCEDURE stile_table_break(p_name VARBINARY(512), p_token BIGINT UNSIGNED)
SQL SECURITY INVOKER
BEGIN
    DECLARE v_broken, v_held INT DEFAULT 0;
    DECLARE v_owners MEDIUMTEXT CHARACTER SET ascii;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        ROLLBACK AND NO CHAIN NO RELEASE;
        RESIGNAL;
    END;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    SET @stile_bells = '';
    START TRANSACTION;
    UPDATE stile_counter SET turns = turns + 1 WHERE name = p_name;
    CALL stile_table_settle(p_name);
    SELECT COUNT(*) INTO v_held FROM stile_claim c WHERE c.name = p_name AND c.held;
    SELECT GROUP_CONCAT(c.owner SEPARATOR ' ') INTO v_owners FROM stile_claim c
    WHERE c.name = p_name AND c.held AND p_token IN (0, c.token);
    DELETE FROM stile_claim WHERE name = p_name AND held AND p_token IN (0, token);
    SET v_broken = IF(v_held > 0, ROW_COUNT(), -1);
    CALL stile_table_grant(p_name, '');
    COMMIT AND NO CHAIN NO RELEASE;
    BEGIN
        DECLARE CONTINUE HANDLER FOR SQLEXCEPTION BEGIN END;
        CALL stile_table_ring();
    END;
    SELECT v_broken, v_owners;
END//

-- The session p_backend has locked the row: count the grant, unless a hold keeps the name back. "g
-- TOKEN", or "h MS".
CREATE /*M!100103 OR REPLACE */ PROCEDURE stile_row_grant(
    p_name VARBINARY(512), p_backend BIGINT UNSIGNED, p_shared BOOLEAN, p_hold_ms BIGINT UNSIGNED,
    p_delay_ms BIGINT UNSIGNED, p_owner VARCHAR(16) CHARACTER SET ascii, p_host VARBINARY(64),
    p_pid BIGINT, p_command VARBINARY(255)
) SQL SECURITY INVOKER
BEGIN
    DECLARE v_token, v_floor BIGINT UNSIGNED DEFAULT 0;
    DECLARE v_left BIGINT;
    DECLARE v_now DATETIME(6);
    DECLARE v_free BOOLEAN DEFAULT FALSE;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        ROLLBACK AND NO CHAIN NO RELEASE;
        RESIGNAL;
    END;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    SELECT f.token INTO v_floor FROM stile_floor f WHERE f.one = 1 LOCK IN SHARE MODE;
    INSERT INTO stile_row_count (name, token, shared, owner, host, pid, command, since)
    VALUES (p_name, v_floor, p_shared, p_owner, p_host, p_pid, p_command, UTC_TIMESTAMP(6))
    ON DUPLICATE KEY UPDATE token = token;
    SELECT n.token, p_shared AND n.shared OR n.delay_ms IS NULL
                                             AND COALESCE(n.hold_until <= UTC_TIMESTAMP(6), TRUE)
    INTO v_token, v_free FROM stile_row_count n WHERE n.name = p_name FOR UPDATE;
    SET v_now = UTC_TIMESTAMP(6), v_left = 0;
    IF v_free THEN
        SET v_token = v_token + 1;
        UPDATE stile_row_count
        SET token = v_token,
            hold_until = IF(p_shared AND shared AND hold_until > COALESCE(
                                v_now + INTERVAL 1000 * p_hold_ms MICROSECOND, v_now),
                            hold_until, v_now + INTERVAL 1000 * p_hold_ms MICROSECOND),
            shared = p_shared, owner = p_owner, host = p_host, pid = p_pid, command = p_command,
            since = v_now, delay_ms = p_delay_ms
        WHERE name = p_name;
    ELSE
        -- A delay that is still there was left by a holder that did not release: it begins now.
        UPDATE stile_row_count
        SET hold_until = GREATEST(COALESCE(hold_until, v_now),
                                  v_now + INTERVAL 1000 * delay_ms MICROSECOND),
            delay_ms = NULL
        WHERE name = p_name AND delay_ms IS NOT NULL;
        SELECT TIMESTAMPDIFF(MICROSECOND, v_now, n.hold_until) INTO v_left
        FROM stile_row_count n WHERE n.name = p_name;
    END IF;
    REPLACE INTO stile_row_claim (backend, name, shared, held, token, owner, host, pid, command, since)
    VALUES (p_backend, p_name, p_shared, v_free, IF(v_free, v_token, 0), p_owner, p_host, p_pid,
            p_command, v_now);
    COMMIT AND NO CHAIN NO RELEASE;
    SELECT IF(v_free, CONCAT('g ', v_token), CONCAT('h ', GREATEST(1, (v_left + 999) DIV 1000)));
END//

-- Before the row is released, if the grant had a hold or a delay.
CREATE /*M!100103 OR REPLACE */ PROCEDURE stile_row_let_go(
    p_name VARBINARY(512), p_token BIGINT UNSIGNED, p_unused BOOLEAN
) SQL SECURITY INVOKER
BEGIN
    UPDATE stile_row_count SET delay_ms = NULL, hold_until = IF(p_unused, NULL, hold_until)
    WHERE name = p_name AND (token = p_token OR shared);
END//

-- Deletes some of the records that are older than 30 days. Each is locked by its primary key, all in
-- one order, and those that store a record lock nothing else: no two of them can block each other.
CREATE /*M!100103 OR REPLACE */ PROCEDURE stile_forget() SQL SECURITY INVOKER
BEGIN
    DECLARE v_left INT DEFAULT 100;
    DECLARE v_day DATE DEFAULT UTC_DATE() - INTERVAL 30 DAY;
    DECLARE v_name VARBINARY(512);
    DECLARE v_mode VARCHAR(144) CHARACTER SET ascii COLLATE ascii_bin;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        ROLLBACK AND NO CHAIN NO RELEASE;
        RESIGNAL;
    END;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    next: WHILE v_left > 0 DO
        SET v_name = NULL;
        SELECT h.name, h.mode INTO v_name, v_mode FROM stile_last_holder h
        WHERE h.stored_on < v_day ORDER BY h.stored_on, h.name, h.mode LIMIT 1;
        IF v_name IS NULL THEN
            LEAVE next;
        END IF;
        DELETE FROM stile_last_holder
        WHERE name = v_name AND mode = v_mode AND stored_on < v_day;
        SET v_left = v_left - 1;
    END WHILE;
    COMMIT AND NO CHAIN NO RELEASE;
END//

-- Deletes names that were not held for this many days, and expired claims. Their tokens are not
-- repeated.
CREATE /*M!100103 OR REPLACE */ PROCEDURE stile_cleanup(p_days INT UNSIGNED) SQL SECURITY INVOKER
BEGIN
    DECLARE v_highest BIGINT UNSIGNED;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        ROLLBACK AND NO CHAIN NO RELEASE;
        RESIGNAL;
    END;
    START TRANSACTION;
    SELECT f.token INTO v_highest FROM stile_floor f WHERE f.one = 1 FOR UPDATE;
    DELETE FROM stile_claim WHERE expires_at <= UTC_TIMESTAMP(6)
        AND (NOT held OR NOT confirmed OR ghost OR delay_ms IS NULL
             AND COALESCE(hold_until <= UTC_TIMESTAMP(6), TRUE));
    SELECT GREATEST(v_highest, COALESCE(MAX(n.token), 0)) INTO v_highest FROM stile_counter n
    FOR UPDATE;
    IF NOT EXISTS (SELECT * FROM stile_version WHERE version = 5) THEN
        SELECT GREATEST(v_highest, COALESCE(MAX(l.token), 0)) INTO v_highest FROM stile_lock l FOR UPDATE;
    END IF;
    SELECT GREATEST(v_highest, COALESCE(MAX(r.token), 0)) INTO v_highest FROM stile_row_count r
    FOR UPDATE;
    UPDATE stile_floor SET token = v_highest WHERE one = 1;
    DELETE FROM stile_row_claim
    WHERE NOT (IS_USED_LOCK(CONCAT('stile row ', backend)) <=> backend);
    DELETE r, n FROM stile_row_count n LEFT JOIN stile_row r ON r.name = n.name
    WHERE n.since < UTC_TIMESTAMP(6) - INTERVAL p_days DAY AND n.delay_ms IS NULL
      AND COALESCE(n.hold_until <= UTC_TIMESTAMP(6), TRUE)
      AND NOT EXISTS (SELECT * FROM stile_row_claim c WHERE c.name = n.name);
    DELETE FROM stile_counter
    WHERE NOT EXISTS (SELECT * FROM stile_claim c WHERE c.name = stile_counter.name);
    DELETE FROM stile_lock
    WHERE since < UTC_TIMESTAMP(6) - INTERVAL p_days DAY AND delay_ms IS NULL
      AND COALESCE(hold_until <= UTC_TIMESTAMP(6), TRUE) AND IS_FREE_LOCK(lock_name);
    COMMIT AND NO CHAIN NO RELEASE;
    DELETE FROM stile_last_holder WHERE stored_on < UTC_DATE() - INTERVAL p_days DAY;
END//

DELIMITER ;

-- ---- jobs ----

-- One row per job that is not done. Ready: it may be claimed from run_at on. Claimed: it belongs to
-- its worker until claimed_until, and may be claimed by another from then on. Dead: it failed too
-- often. Times are UTC. A token is the job's number and the count of its claims: 17000003 is the
-- third claim of job 17.
CREATE TABLE IF NOT EXISTS stile_job (
    id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
    queue VARBINARY(512) NOT NULL,
    job_key VARBINARY(512),
    state ENUM('ready', 'claimed', 'dead') NOT NULL,
    tries INT UNSIGNED NOT NULL DEFAULT 0,
    run_at DATETIME(6) NOT NULL,
    claimed_until DATETIME(6),
    worker VARCHAR(40) CHARACTER SET ascii,
    host VARCHAR(64) CHARACTER SET ascii,
    pid BIGINT,
    token BIGINT UNSIGNED NOT NULL DEFAULT 0,
    last_error VARCHAR(4096) CHARACTER SET utf8mb4,
    added_at DATETIME(6) NOT NULL,
    payload MEDIUMBLOB NOT NULL,
    due_at DATETIME(6) AS (IF(state = 'dead', NULL, COALESCE(claimed_until, run_at))) VIRTUAL,
    queued_key VARBINARY(512) AS (IF(state = 'ready' AND token = 0, job_key, NULL)) VIRTUAL,
    KEY due (queue, due_at, id),
    UNIQUE KEY queued_key (queue, queued_key)
) ENGINE=InnoDB;

DELIMITER //

-- Adds a job in the caller's own transaction: it exists if, and only if, the transaction commits.
-- p_key may be NULL; p_id becomes its number, or that of the waiting job with this key.
CREATE /*M!100103 OR REPLACE */ PROCEDURE stile_job_add(
    p_queue VARBINARY(512), p_payload MEDIUMBLOB, p_key VARBINARY(512), p_delay_ms BIGINT UNSIGNED,
    OUT p_id BIGINT UNSIGNED
) SQL SECURITY INVOKER
BEGIN
    DECLARE v_now DATETIME(6) DEFAULT UTC_TIMESTAMP(6);
    IF LENGTH(p_payload) > 1048576 THEN
        SIGNAL SQLSTATE '22001' SET MESSAGE_TEXT = 'the payload of a job has 1 MiB at most';
    END IF;
    INSERT INTO stile_job (queue, job_key, state, run_at, added_at, payload)
    VALUES (p_queue, p_key, 'ready',
            v_now + INTERVAL 1000 * COALESCE(p_delay_ms, 0) MICROSECOND, v_now, p_payload)
    ON DUPLICATE KEY UPDATE id = LAST_INSERT_ID(id);
    SET p_id = LAST_INSERT_ID();
END//

-- Makes dead jobs ready again (number 0: all of the queue), one of each key and none whose key
-- waits. They get new numbers: a token begins with its job's number, and must be larger than those
-- of later jobs with the same key. Returns how many.
CREATE /*M!100103 OR REPLACE */ PROCEDURE stile_job_retry(p_queue VARBINARY(512), p_id BIGINT UNSIGNED)
SQL SECURITY INVOKER
BEGIN
    DECLARE v_n BIGINT DEFAULT 0;
    DECLARE v_mark VARCHAR(40) CHARACTER SET ascii DEFAULT CONCAT('retry ', UUID_SHORT());
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        ROLLBACK AND NO CHAIN NO RELEASE;
        RESIGNAL;
    END;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    UPDATE stile_job j JOIN (
        SELECT MIN(d.id) AS id FROM stile_job d
        LEFT JOIN stile_job o ON o.queue = d.queue AND o.queued_key = d.job_key
        WHERE d.queue = p_queue AND d.state = 'dead' AND o.id IS NULL AND p_id IN (0, d.id)
        GROUP BY COALESCE(d.job_key, d.id)) f ON j.id = f.id
    SET j.worker = v_mark WHERE j.state = 'dead';
    SET v_n = ROW_COUNT();
    INSERT INTO stile_job (queue, job_key, state, run_at, host, pid, last_error, added_at, payload)
    SELECT d.queue, d.job_key, 'ready', UTC_TIMESTAMP(6), d.host, d.pid, d.last_error, d.added_at,
           d.payload
    FROM stile_job d WHERE d.queue = p_queue AND d.state = 'dead' AND d.worker = v_mark;
    DELETE FROM stile_job WHERE queue = p_queue AND state = 'dead' AND worker = v_mark;
    COMMIT AND NO CHAIN NO RELEASE;
    SELECT v_n;
END//

DELIMITER ;

DELIMITER //

-- Lets tokens of GET_LOCK be drawn without waiting for the disk, where the server keeps tables in memory. The
-- first epoch is above all that rows have counted. The view shows all holders, for administrators; a lock
-- without expires_at ends with its session.
CREATE /*M!100103 OR REPLACE */ PROCEDURE stile_make_tokens() SQL SECURITY INVOKER
BEGIN
    DECLARE v_usable BOOLEAN DEFAULT FALSE;
    SELECT COUNT(*) INTO v_usable FROM information_schema.TABLES
    WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'stile_life' AND ENGINE = 'MEMORY';
    IF v_usable THEN
        BEGIN -- Group Replication does not let it be written
            DECLARE CONTINUE HANDLER FOR SQLEXCEPTION SET v_usable = FALSE;
            INSERT INTO stile_life (base, server, first) VALUES (18446744073709551615, 0, 0);
        END;
    END IF;
    IF v_usable THEN
        IF EXISTS (SELECT * FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE()
                   AND TABLE_NAME = 'stile_lock' AND COLUMN_NAME = 'token') THEN
            ALTER TABLE stile_lock CHANGE token last_token BIGINT UNSIGNED NOT NULL;
        END IF;
        INSERT IGNORE INTO stile_epoch (one, base, bound, holds)
        SELECT 1, 0, GREATEST((SELECT COALESCE(MAX(f.token), 0) FROM stile_floor f),
                              (SELECT COALESCE(MAX(l.last_token), 0) FROM stile_lock l)),
               IF(EXISTS (SELECT * FROM stile_lock l WHERE l.delay_ms IS NOT NULL
                          OR l.hold_until > UTC_TIMESTAMP(6)), 2, 0);
        CREATE OR REPLACE SQL SECURITY INVOKER VIEW stile_locks AS
        SELECT CONVERT(name USING utf8mb4) AS name, owner, host, pid, since,
               IF(IS_USED_LOCK(lock_name) <=> backend, NULL, hold_until) AS expires_at,
               last_token AS token, IS_USED_LOCK(lock_name) AS backend, command
        FROM stile_lock
        WHERE IS_USED_LOCK(lock_name) <=> COALESCE(backend, 0)
              AND IS_USED_LOCK(CONCAT('stile grant ', last_token, ' ', backend)) <=> backend
              OR hold_until > UTC_TIMESTAMP(6)
        UNION ALL
        SELECT CONVERT(name USING utf8mb4), owner, host, pid, since, expires_at, token, NULL, command
        FROM stile_claim WHERE held AND expires_at > UTC_TIMESTAMP(6)
        UNION ALL
        SELECT CONVERT(name USING utf8mb4), owner, host, pid, since, NULL, token, backend, command
        FROM stile_row_claim WHERE held AND IS_USED_LOCK(CONCAT('stile row ', backend)) <=> backend;
        INSERT IGNORE INTO stile_version VALUES (1), (2), (3), (4), (5);
    ELSE
        CREATE OR REPLACE SQL SECURITY INVOKER VIEW stile_locks AS
        SELECT CONVERT(name USING utf8mb4) AS name, owner, host, pid, since,
               IF(IS_USED_LOCK(lock_name) <=> backend, NULL, hold_until) AS expires_at,
               token, IS_USED_LOCK(lock_name) AS backend, command
        FROM stile_lock
        WHERE IS_USED_LOCK(lock_name) <=> COALESCE(backend, 0) OR hold_until > UTC_TIMESTAMP(6)
        UNION ALL
        SELECT CONVERT(name USING utf8mb4), owner, host, pid, since, expires_at, token, NULL, command
        FROM stile_claim WHERE held AND expires_at > UTC_TIMESTAMP(6)
        UNION ALL
        SELECT CONVERT(name USING utf8mb4), owner, host, pid, since, NULL, token, backend, command
        FROM stile_row_claim WHERE held AND IS_USED_LOCK(CONCAT('stile row ', backend)) <=> backend;
        INSERT IGNORE INTO stile_version VALUES (1), (2), (3), (4);
    END IF;
END//

DELIMITER ;

CALL stile_make_tokens();
