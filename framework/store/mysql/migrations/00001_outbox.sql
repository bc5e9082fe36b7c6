-- +goose NO TRANSACTION
-- +goose Up

-- Each DDL statement commits by itself, so an interrupted migration runs again: a statement
-- that was already executed does nothing.
--
-- All times are DATETIME in UTC: a session's time zone changes nothing. Texts are compared
-- byte for byte, without padding: under utf8mb4_bin 'a' and 'a ' would be equal.

-- The log. An offset is assigned before its row exists, and a transaction may commit rows
-- with lower offsets than rows that were committed earlier; see ../tracker.go. JSON is
-- stored as checked text: the type JSON would change how a payload is written.
CREATE TABLE IF NOT EXISTS {{.Log}} (
    `offset`     BIGINT        NOT NULL AUTO_INCREMENT,
    id           VARCHAR(255)  NOT NULL DEFAULT (UUID()),
    type         VARCHAR(255)  NOT NULL,
    version      SMALLINT      NOT NULL DEFAULT 1,
    `key`        VARCHAR(1024) NOT NULL DEFAULT '',
    -- after id: to MySQL a column whose default is an expression is a generated one
    slot         SMALLINT      GENERATED ALWAYS AS (CRC32(IF(`key` = '', id, `key`)) & 1023) STORED,
    occurred_on  DATETIME(6)   NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    deliver_at   DATETIME(6)   NULL,
    -- to find scheduled notifications by id and by key when they are cancelled; otherwise NULL
    due_id       INT UNSIGNED  GENERATED ALWAYS AS (IF(deliver_at IS NULL, NULL, CRC32(id))) STORED,
    due_key      INT UNSIGNED  GENERATED ALWAYS AS (IF(deliver_at IS NULL OR `key` = '', NULL, CRC32(`key`))) STORED,
    metadata     LONGTEXT      NOT NULL DEFAULT ('{}'),
    payload      {{.PayloadType}} NOT NULL,
    PRIMARY KEY (`offset`),
    KEY {{.Name "due_id"}} (due_id),
    KEY {{.Name "due_key"}} (due_key),
    CONSTRAINT {{.Name "names"}} CHECK (type <> '' AND id <> '' AND LENGTH(type) <= 255 AND LENGTH(id) <= 255 AND LENGTH(`key`) <= 1024),
    -- on MariaDB, JSON_TYPE of a text that is not JSON is NULL, which passes a CHECK
    CONSTRAINT {{.Name "values"}} CHECK (version > 0 AND JSON_VALID(metadata) AND JSON_TYPE(metadata) = 'OBJECT'){{if .JSON}},
    CONSTRAINT {{.Name "payload"}} CHECK (JSON_VALID(payload)){{end}}
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC CHARACTER SET utf8mb4 COLLATE {{.Collation}};

-- How far each sink has settled each lane, and which forwarder works on it.
CREATE TABLE IF NOT EXISTS {{.Table "cursors"}} (
    sink        VARCHAR(255) NOT NULL,
    lane        SMALLINT     NOT NULL,
    lanes       SMALLINT     NOT NULL,
    wanted      SMALLINT     NULL, -- the requested number of lanes, if it differs
    position    LONGTEXT     NULL,
    settled     LONGTEXT     NOT NULL DEFAULT (''),
    owner       VARCHAR(255) NULL,
    epoch       BIGINT       NOT NULL DEFAULT 0,
    checkpoint  BIGINT       NOT NULL DEFAULT 0,
    lease_until DATETIME(6)  NULL,
    paused      BOOLEAN      NOT NULL DEFAULT FALSE,
    revision    BIGINT       NOT NULL DEFAULT 0, -- changes when a person changes parked deliveries
    updated_at  DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    PRIMARY KEY (sink, lane)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC CHARACTER SET utf8mb4 COLLATE {{.Collation}};

-- The running forwarders, and the sinks that each can deliver to.
CREATE TABLE IF NOT EXISTS {{.Table "forwarders"}} (
    owner      VARCHAR(255) NOT NULL,
    since      DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)), -- the first heartbeat; seen_at is the last one
    seen_at    DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    sinks      LONGTEXT     NOT NULL,
    state      LONGTEXT     NOT NULL DEFAULT ('{}'), -- of its sinks with problems
    running    LONGTEXT     NOT NULL DEFAULT ('{}'), -- its version, settings, slowest checkpoint and figures of its sinks
    live_until DATETIME(6)  NOT NULL,
    PRIMARY KEY (owner)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC CHARACTER SET utf8mb4 COLLATE {{.Collation}};

-- Deliveries that could not be made in their turn, with their envelopes. The id is in the
-- primary key because a truncated log uses the same offsets again. The column key has
-- bytes: as characters it would be too long for an index.
CREATE TABLE IF NOT EXISTS {{.Table "parked"}} (
    sink            VARCHAR(255)    NOT NULL,
    `offset`        BIGINT          NOT NULL,
    slot            SMALLINT        NOT NULL,
    id              VARCHAR(255)    NOT NULL,
    type            VARCHAR(255)    NOT NULL,
    version         SMALLINT        NOT NULL,
    `key`           VARBINARY(1024) NOT NULL,
    occurred_on     DATETIME(6)     NOT NULL,
    deliver_at      DATETIME(6)     NULL,
    metadata        LONGTEXT        NOT NULL,
    payload         {{.PayloadType}} NOT NULL,
    state           VARCHAR(16)     NOT NULL,
    attempt         INT             NOT NULL,
    due_at          DATETIME(6)     NULL,
    last_error      LONGTEXT        NOT NULL DEFAULT (''),
    receipt         LONGTEXT        NOT NULL DEFAULT (''), -- if state is settling
    hook_error      LONGTEXT        NOT NULL DEFAULT (''),
    hook_failures   INT             NOT NULL DEFAULT 0,
    first_parked_at DATETIME(6)     NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    updated_at      DATETIME(6)     NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    PRIMARY KEY (sink, `offset`, id),
    KEY {{.Name "parked_due"}} (sink, due_at, `offset`),
    KEY {{.Name "parked_key"}} (sink, `key`, `offset`),
    KEY {{.Name "parked_state"}} (sink, state, first_parked_at),
    KEY {{.Name "parked_hook"}} (sink, hook_failures),
    KEY {{.Name "parked_id"}} (id),
    KEY {{.Name "parked_plain_key"}} (`key`),
    CONSTRAINT {{.Name "parked_states"}} CHECK (state IN ('retrying', 'scheduled', 'blocked', 'dead', 'settling'))
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC CHARACTER SET utf8mb4 COLLATE {{.Collation}};

-- Scheduled notifications that a publisher has cancelled. Offset and id together identify
-- a row of the log and its parked deliveries.
CREATE TABLE IF NOT EXISTS {{.Table "cancelled"}} (
    `offset`     BIGINT       NOT NULL,
    id           VARCHAR(255) NOT NULL,
    cancelled_at DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    token        CHAR(26)     NULL, -- of the statement that wrote the row, until it has counted it
    PRIMARY KEY (`offset`, id),
    KEY {{.Name "cancelled_id"}} (id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC CHARACTER SET utf8mb4 COLLATE {{.Collation}};

-- Uniqueness keys, and until when no other notification of the type with that key is published.
CREATE TABLE IF NOT EXISTS {{.Table "unique"}} (
    type  VARCHAR(255)    NOT NULL,
    `key` VARBINARY(1024) NOT NULL,
    until DATETIME(6)     NOT NULL,
    token CHAR(26)        NULL, -- of the claim that took the key, until it knows that it did
    PRIMARY KEY (type, `key`),
    KEY {{.Name "unique_until"}} (until)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC CHARACTER SET utf8mb4 COLLATE {{.Collation}};

-- The archive of deliveries; empty unless receipts are kept.
CREATE TABLE IF NOT EXISTS {{.Table "receipts"}} (
    sink         VARCHAR(255) NOT NULL,
    `offset`     BIGINT       NOT NULL,
    id           VARCHAR(255) NOT NULL,
    receipt      LONGTEXT     NOT NULL,
    attempt      INT          NOT NULL,
    delivered_at DATETIME(6)  NOT NULL,
    PRIMARY KEY (sink, `offset`, id),
    KEY {{.Name "receipts_id"}} (id),
    KEY {{.Name "receipts_delivered_at"}} (delivered_at)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC CHARACTER SET utf8mb4 COLLATE {{.Collation}};

-- Ids that a consumer has already handled.
CREATE TABLE IF NOT EXISTS {{.Table "inbox"}} (
    consumer VARBINARY(1000) NOT NULL,
    id       VARBINARY(1000) NOT NULL,
    seen_at  DATETIME(6)     NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    repeats  BIGINT          NOT NULL DEFAULT 0, -- how often the id came again
    PRIMARY KEY (consumer, id),
    KEY {{.Name "inbox_seen_at"}} (seen_at),
    CONSTRAINT {{.Name "inbox_names"}} CHECK (consumer <> '' AND id <> '')
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC CHARACTER SET utf8mb4 COLLATE {{.Collation}};

-- The schedules, with the times when they are due.
CREATE TABLE IF NOT EXISTS {{.Table "schedules"}} (
    name         VARCHAR(255) NOT NULL,
    id           VARCHAR(255) NOT NULL, -- unique to this row, also if the name is used again
    spec         LONGTEXT     NOT NULL DEFAULT (''),
    missed       VARCHAR(255) NOT NULL DEFAULT '',
    last_tick    DATETIME(6)  NULL,
    next_tick    DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    requested_at DATETIME(6)  NULL,
    paused       BOOLEAN      NOT NULL DEFAULT FALSE,
    revision     BIGINT       NOT NULL DEFAULT 0,
    updated_at   DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    PRIMARY KEY (name)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC CHARACTER SET utf8mb4 COLLATE {{.Collation}};

-- Actions of people: on parked deliveries, on sinks and on the log.
CREATE TABLE IF NOT EXISTS {{.Table "actions"}} (
    id           VARCHAR(255) NOT NULL,
    at           DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    who          LONGTEXT     NOT NULL,
    address      LONGTEXT     NOT NULL DEFAULT (''), -- of the client that requested it
    reason       LONGTEXT     NOT NULL DEFAULT (''),
    action       VARCHAR(255) NOT NULL,
    filter       LONGTEXT     NOT NULL,
    request      LONGTEXT     NOT NULL DEFAULT (''), -- digest of the request, to recognize a repeated one
    planned      BIGINT       NOT NULL DEFAULT 0,
    count        BIGINT       NOT NULL DEFAULT 0,
    through      BIGINT       NOT NULL DEFAULT 0, -- the offset that a replay has reached
    updated_at   DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)), -- by its last batch
    cancelled_at DATETIME(6)  NULL, -- it stops then
    cancelled_by LONGTEXT     NOT NULL DEFAULT (''),
    ended_at     DATETIME(6)  NULL, -- null while it runs, or if it was interrupted
    PRIMARY KEY (id),
    KEY {{.Name "actions_at"}} (at)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC CHARACTER SET utf8mb4 COLLATE {{.Collation}};
