-- +goose Up

-- The log. SQLite has one writer at a time, so the order of "offset" is the order
-- of the commits. With AUTOINCREMENT an offset is never used again, even after the
-- newest rows were deleted. All rows are in slot 0.
--
-- Times are RFC 3339 texts in UTC with microseconds, so that they sort as texts.
-- Producers may also write the forms that SQLite's own functions return.
CREATE TABLE {{.Log}} (
    "offset"    INTEGER PRIMARY KEY AUTOINCREMENT,
    slot        INTEGER NOT NULL DEFAULT 0,
    id          TEXT    NOT NULL DEFAULT (lower(
                    hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2) || '-' ||
                    substr('89ab', 1 + (random() & 3), 1) || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))),
    type        TEXT    NOT NULL,
    version     INTEGER NOT NULL DEFAULT 1,
    key         TEXT    NOT NULL DEFAULT '',
    occurred_on TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    deliver_at  TEXT,
    metadata    TEXT    NOT NULL DEFAULT '{}',
    payload     BLOB    NOT NULL,

    -- SQLite does not enforce column types. These checks refuse rows at which every
    -- reader would otherwise stop.
    CONSTRAINT slot_is_0                CHECK (slot = 0),
    CONSTRAINT id_is_not_empty          CHECK (id <> ''),
    CONSTRAINT type_is_not_empty        CHECK (type <> ''),
    CONSTRAINT version_is_1_to_32767    CHECK (typeof(version) = 'integer' AND version BETWEEN 1 AND 32767),
    CONSTRAINT occurred_on_is_a_time    CHECK (julianday(occurred_on) IS NOT NULL AND occurred_on
        GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9][T ][0-9][0-9]:[0-9][0-9]:[0-9][0-9]*'),
    CONSTRAINT deliver_at_is_a_time     CHECK (deliver_at IS NULL OR julianday(deliver_at) IS NOT NULL AND deliver_at
        GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9][T ][0-9][0-9]:[0-9][0-9]:[0-9][0-9]*'),
    CONSTRAINT metadata_is_a_json_object CHECK (json_valid(metadata) AND json_type(metadata) = 'object')
);

-- Scheduled notifications are found by id and by key when they are cancelled.
CREATE INDEX {{.Table "scheduled_id"}} ON {{.Log}} (id) WHERE deliver_at IS NOT NULL;
CREATE INDEX {{.Table "scheduled_key"}} ON {{.Log}} (key) WHERE deliver_at IS NOT NULL AND key <> '';

-- How far each sink has settled each lane, and which forwarder works on it.
CREATE TABLE {{.Table "cursors"}} (
    sink        TEXT    NOT NULL,
    lane        INTEGER NOT NULL,
    lanes       INTEGER NOT NULL,
    wanted      INTEGER, -- the requested number of lanes, if it differs
    position    TEXT,
    settled     TEXT    NOT NULL DEFAULT '',
    owner       TEXT,
    epoch       INTEGER NOT NULL DEFAULT 0,
    checkpoint  INTEGER NOT NULL DEFAULT 0,
    lease_until TEXT,
    paused      INTEGER NOT NULL DEFAULT 0,
    revision    INTEGER NOT NULL DEFAULT 0, -- changes when a person changes parked deliveries
    updated_at  TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    PRIMARY KEY (sink, lane),
    CHECK (lane >= 0 AND lane < lanes)
);

-- The running forwarders, and the sinks that each can deliver to.
CREATE TABLE {{.Table "forwarders"}} (
    owner      TEXT PRIMARY KEY,
    since      TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')), -- the first heartbeat; seen_at is the last one
    seen_at    TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    sinks      TEXT NOT NULL,
    state      TEXT NOT NULL DEFAULT '{}', -- of its sinks with problems
    running    TEXT NOT NULL DEFAULT '{}', -- its version, settings, slowest checkpoint and figures of its sinks
    live_until TEXT NOT NULL
);

-- Deliveries that could not be made in their turn, with their envelopes. The id is
-- in the key because a truncated log uses the same offsets again.
CREATE TABLE {{.Table "parked"}} (
    sink            TEXT    NOT NULL,
    "offset"        INTEGER NOT NULL,
    slot            INTEGER NOT NULL,
    id              TEXT    NOT NULL,
    type            TEXT    NOT NULL,
    version         INTEGER NOT NULL,
    key             TEXT    NOT NULL,
    occurred_on     TEXT    NOT NULL,
    deliver_at      TEXT,
    metadata        TEXT    NOT NULL,
    payload         BLOB    NOT NULL,
    state           TEXT    NOT NULL CHECK (state IN ('retrying', 'scheduled', 'blocked', 'dead', 'settling')),
    attempt         INTEGER NOT NULL,
    due_at          TEXT,
    last_error      TEXT    NOT NULL DEFAULT '',
    receipt         TEXT    NOT NULL DEFAULT '', -- if state is settling
    hook_error      TEXT    NOT NULL DEFAULT '',
    hook_failures   INTEGER NOT NULL DEFAULT 0,
    first_parked_at TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    updated_at      TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    PRIMARY KEY (sink, "offset", id)
);

CREATE INDEX {{.Table "parked_due"}} ON {{.Table "parked"}} (sink, due_at, "offset") WHERE due_at IS NOT NULL;
CREATE INDEX {{.Table "parked_key"}} ON {{.Table "parked"}} (sink, key, "offset")
    WHERE key <> '' AND state IN ('retrying', 'blocked', 'dead');
CREATE INDEX {{.Table "parked_state"}} ON {{.Table "parked"}} (sink, state, first_parked_at);
CREATE INDEX {{.Table "parked_hook"}} ON {{.Table "parked"}} (sink, state) WHERE hook_failures > 0;
CREATE INDEX {{.Table "parked_id"}} ON {{.Table "parked"}} (id);
CREATE INDEX {{.Table "parked_scheduled_key"}} ON {{.Table "parked"}} (key) WHERE state = 'scheduled' AND key <> '';

-- Scheduled notifications that a publisher has cancelled. Offset and id together identify
-- a row of the log and its parked deliveries.
CREATE TABLE {{.Table "cancelled"}} (
    "offset"     INTEGER NOT NULL,
    id           TEXT    NOT NULL,
    cancelled_at TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    PRIMARY KEY ("offset", id)
);

CREATE INDEX {{.Table "cancelled_id"}} ON {{.Table "cancelled"}} (id);

-- Uniqueness keys, and until when no other notification of the type with that key is published.
CREATE TABLE {{.Table "unique"}} (
    type  TEXT NOT NULL,
    key   TEXT NOT NULL,
    until TEXT NOT NULL,
    PRIMARY KEY (type, key)
);

CREATE INDEX {{.Table "unique_until"}} ON {{.Table "unique"}} (until);

-- The archive of deliveries; empty unless receipts are kept.
CREATE TABLE {{.Table "receipts"}} (
    sink         TEXT    NOT NULL,
    "offset"     INTEGER NOT NULL,
    id           TEXT    NOT NULL,
    receipt      TEXT    NOT NULL,
    attempt      INTEGER NOT NULL,
    delivered_at TEXT    NOT NULL,
    PRIMARY KEY (sink, "offset", id)
);

CREATE INDEX {{.Table "receipts_id"}} ON {{.Table "receipts"}} (id);
CREATE INDEX {{.Table "receipts_delivered_at"}} ON {{.Table "receipts"}} (delivered_at);

-- Ids that a consumer has already handled.
CREATE TABLE {{.Table "inbox"}} (
    consumer TEXT NOT NULL,
    id       TEXT NOT NULL,
    seen_at  TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    PRIMARY KEY (consumer, id),
    CHECK (consumer <> '' AND id <> '' AND length(consumer) <= 1000 AND length(id) <= 1000)
);

CREATE INDEX {{.Table "inbox_seen_at"}} ON {{.Table "inbox"}} (seen_at);

-- The schedules, with the times when they are due.
CREATE TABLE {{.Table "schedules"}} (
    name         TEXT    PRIMARY KEY,
    id           TEXT    NOT NULL, -- unique to this row, also if the name is used again
    spec         TEXT    NOT NULL DEFAULT '',
    missed       TEXT    NOT NULL DEFAULT '',
    last_tick    TEXT,
    next_tick    TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    requested_at TEXT,
    paused       INTEGER NOT NULL DEFAULT 0,
    revision     INTEGER NOT NULL DEFAULT 0,
    updated_at   TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now'))
);

-- Actions of people: on parked deliveries, on sinks and on the log.
CREATE TABLE {{.Table "actions"}} (
    id           TEXT    PRIMARY KEY,
    at           TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    who          TEXT    NOT NULL,
    address      TEXT    NOT NULL DEFAULT '', -- of the client that requested it
    reason       TEXT    NOT NULL DEFAULT '',
    action       TEXT    NOT NULL,
    filter       TEXT    NOT NULL,
    request      TEXT    NOT NULL DEFAULT '', -- digest of the request, to recognize a repeated one
    planned      INTEGER NOT NULL DEFAULT 0,
    count        INTEGER NOT NULL DEFAULT 0,
    through      INTEGER NOT NULL DEFAULT 0, -- the offset that a replay has reached
    updated_at   TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')), -- by its last batch
    cancelled_at TEXT, -- it stops then
    cancelled_by TEXT    NOT NULL DEFAULT '',
    ended_at     TEXT -- null while it runs, or if it was interrupted
);

CREATE INDEX {{.Table "actions_at"}} ON {{.Table "actions"}} (at);
