-- The tables of stile, in the database that the URL names. Each part is safe to be run again.
-- Who uses them needs SELECT, INSERT and UPDATE on stile_lock, and SELECT on the others.

CREATE TABLE IF NOT EXISTS stile_version (
    version INT UNSIGNED NOT NULL PRIMARY KEY
) ENGINE=InnoDB COMMENT='locks with fencing tokens: stile setup';

-- One row a name: its counter, and who has it or had it last. Whether it is held right now only
-- IS_USED_LOCK(lock_name) tells, and the view stile_locks. Times are UTC.
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

-- Tokens of names whose rows were cleared away are below this, so that none ever comes back. To clear
-- away: START TRANSACTION; UPDATE stile_floor SET token = GREATEST(token, (SELECT COALESCE(MAX(token),
-- 0) FROM stile_lock)); DELETE FROM stile_lock WHERE since < UTC_TIMESTAMP(6) - INTERVAL 30 DAY AND
-- delay_ms IS NULL AND COALESCE(hold_until <= UTC_TIMESTAMP(6), TRUE) AND IS_FREE_LOCK(lock_name);
-- COMMIT;
CREATE TABLE IF NOT EXISTS stile_floor (
    one TINYINT NOT NULL PRIMARY KEY,
    token BIGINT UNSIGNED NOT NULL
) ENGINE=InnoDB;
INSERT IGNORE INTO stile_floor VALUES (1, 0);

-- Who holds what, for a person. What has no expires_at ends with its session.
CREATE OR REPLACE SQL SECURITY INVOKER VIEW stile_locks AS
SELECT CONVERT(name USING utf8mb4) AS name, owner, host, pid, since,
       IF(IS_USED_LOCK(lock_name) <=> backend, NULL, hold_until) AS expires_at,
       token, IS_USED_LOCK(lock_name) AS backend, command
FROM stile_lock
WHERE IS_USED_LOCK(lock_name) <=> COALESCE(backend, 0) OR hold_until > UTC_TIMESTAMP(6);

INSERT IGNORE INTO stile_version VALUES (1)
