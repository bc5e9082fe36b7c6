-- +goose Up

-- The log. Readers rely on two facts, otherwise rows would be lost: a transaction
-- gets its id before its first offset, and the sequence returns one number at a
-- time. So transaction_id is before "offset", since columns are computed in order,
-- and producers cannot choose an offset.
{{- if .Partitions}} An identity column does that, but not in a
-- partitioned table before PostgreSQL 17: here the default takes the id first, and
-- a trigger refuses every other offset.
CREATE SEQUENCE {{.Table "offset_seq"}} AS bigint CACHE 1;
{{end}}
CREATE TABLE {{.Log}} (
    transaction_id xid8        NOT NULL DEFAULT pg_current_xact_id(),
{{- if .Partitions}}
    "offset"       bigint      PRIMARY KEY DEFAULT {{.Default}},
{{- else}}
    "offset"       bigint      PRIMARY KEY GENERATED ALWAYS AS IDENTITY (SEQUENCE NAME {{.Table "offset_seq"}} CACHE 1),
{{- end}}
    slot           smallint    NOT NULL GENERATED ALWAYS AS
                   ((hashtextextended(CASE WHEN key = '' THEN id ELSE key END, 0) & 1023)::smallint) STORED,
    id             text        NOT NULL DEFAULT gen_random_uuid()::text,
    type           text        NOT NULL,
    version        smallint    NOT NULL DEFAULT 1,
    key            text        NOT NULL DEFAULT '',
    occurred_on    timestamptz NOT NULL DEFAULT now(),
    deliver_at     timestamptz,
    metadata       jsonb       NOT NULL DEFAULT '{}',
    payload        {{.Payload}} NOT NULL,
    -- These refuse rows that could not be delivered, or are too large for the indexes of
    -- parked deliveries. Each INSERT parses each constraint, so they are few and short:
    -- isfinite(NULL) is NULL, which passes.
    CONSTRAINT {{.Name "names"}} CHECK (type <> '' AND id <> '' AND octet_length(type) <= 255 AND octet_length(id) <= 255 AND octet_length(key) <= 1024),
    CONSTRAINT {{.Name "values"}} CHECK ("offset" > 0 AND isfinite(occurred_on) AND isfinite(deliver_at) AND jsonb_typeof(metadata) = 'object')
){{if .Partitions}} PARTITION BY RANGE ("offset");

-- Contains rows for which no range was created in time, so that no insert fails.
CREATE TABLE {{.Table "default"}} PARTITION OF {{.Log}} DEFAULT;
{{range .Partitions}}CREATE TABLE {{.Name}} PARTITION OF {{$.Log}} FOR VALUES FROM ({{.From}}) TO ({{.To}});
{{end}}
ALTER SEQUENCE {{.Table "offset_seq"}} OWNED BY {{.Log}}."offset";

-- +goose StatementBegin
{{.Guard}}
-- +goose StatementEnd
{{else}};
{{end}}
-- Scheduled notifications are found by id and by key when they are cancelled.
CREATE INDEX {{.Name "scheduled_id"}} ON {{.Log}} (id) WHERE deliver_at IS NOT NULL;
CREATE INDEX {{.Name "scheduled_key"}} ON {{.Log}} (key) WHERE deliver_at IS NOT NULL AND key <> '';

-- How far each sink has settled each lane, and which forwarder works on it. Each
-- checkpoint updates a row; the free space keeps those updates in the same page.
CREATE TABLE {{.Table "cursors"}} (
    sink        text        NOT NULL,
    lane        smallint    NOT NULL,
    lanes       smallint    NOT NULL,
    wanted      smallint, -- the requested number of lanes, if it differs
    position    jsonb,
    settled     text        NOT NULL DEFAULT '',
    owner       text,
    epoch       bigint      NOT NULL DEFAULT 0,
    checkpoint  bigint      NOT NULL DEFAULT 0,
    lease_until timestamptz,
    paused      boolean     NOT NULL DEFAULT false,
    revision    bigint      NOT NULL DEFAULT 0, -- changes when a person changes parked deliveries
    updated_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (sink, lane)
) WITH (fillfactor = 20);

-- The running forwarders, and the sinks that each can deliver to.
CREATE TABLE {{.Table "forwarders"}} (
    owner      text        PRIMARY KEY,
    since      timestamptz NOT NULL DEFAULT now(), -- the first heartbeat; seen_at is the last one
    seen_at    timestamptz NOT NULL DEFAULT now(),
    sinks      jsonb       NOT NULL,
    state      jsonb       NOT NULL DEFAULT '{}', -- of its sinks with problems
    running    jsonb       NOT NULL DEFAULT '{}', -- its version, settings, slowest checkpoint and figures of its sinks
    live_until timestamptz NOT NULL
) WITH (fillfactor = 20);

-- Deliveries that could not be made in their turn, with their envelopes. The id is
-- in the key because a truncated log uses the same offsets again.
CREATE TABLE {{.Table "parked"}} (
    sink            text        NOT NULL,
    "offset"        bigint      NOT NULL,
    slot            smallint    NOT NULL,
    id              text        NOT NULL,
    type            text        NOT NULL,
    version         smallint    NOT NULL,
    key             text        NOT NULL,
    occurred_on     timestamptz NOT NULL,
    deliver_at      timestamptz,
    metadata        jsonb       NOT NULL,
    payload         {{.Payload}} NOT NULL,
    state           text        NOT NULL CHECK (state IN ('retrying', 'scheduled', 'blocked', 'dead', 'settling')),
    attempt         integer     NOT NULL,
    due_at          timestamptz,
    last_error      text        NOT NULL DEFAULT '',
    receipt         text        NOT NULL DEFAULT '', -- if state is settling
    hook_error      text        NOT NULL DEFAULT '',
    hook_failures   integer     NOT NULL DEFAULT 0,
    first_parked_at timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (sink, "offset", id)
) WITH (fillfactor = 80);

CREATE INDEX {{.Name "parked_due"}} ON {{.Table "parked"}} (sink, due_at, "offset") WHERE due_at IS NOT NULL;
CREATE INDEX {{.Name "parked_key"}} ON {{.Table "parked"}} (sink, key, "offset")
    WHERE key <> '' AND state IN ('retrying', 'blocked', 'dead');
CREATE INDEX {{.Name "parked_state"}} ON {{.Table "parked"}} (sink, state, first_parked_at);
CREATE INDEX {{.Name "parked_hook"}} ON {{.Table "parked"}} (sink, state) WHERE hook_failures > 0;
CREATE INDEX {{.Name "parked_id"}} ON {{.Table "parked"}} (id);
CREATE INDEX {{.Name "parked_scheduled_key"}} ON {{.Table "parked"}} (key) WHERE state = 'scheduled' AND key <> '';

-- Scheduled notifications that a publisher has cancelled. Offset and id together identify
-- a row of the log and its parked deliveries.
CREATE TABLE {{.Table "cancelled"}} (
    "offset"     bigint      NOT NULL,
    id           text        NOT NULL,
    cancelled_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY ("offset", id)
);

CREATE INDEX {{.Name "cancelled_id"}} ON {{.Table "cancelled"}} (id);

-- Uniqueness keys, and until when no other notification of the type with that key is published.
CREATE TABLE {{.Table "unique"}} (
    type  text        NOT NULL,
    key   text        NOT NULL,
    until timestamptz NOT NULL,
    PRIMARY KEY (type, key)
) WITH (fillfactor = 80);

CREATE INDEX {{.Name "unique_until"}} ON {{.Table "unique"}} (until);

-- The archive of deliveries; empty unless receipts are kept.
CREATE TABLE {{.Table "receipts"}} (
    sink         text        NOT NULL,
    "offset"     bigint      NOT NULL,
    id           text        NOT NULL,
    receipt      text        NOT NULL,
    attempt      integer     NOT NULL,
    delivered_at timestamptz NOT NULL,
    PRIMARY KEY (sink, "offset", id)
);

CREATE INDEX {{.Name "receipts_id"}} ON {{.Table "receipts"}} (id);
CREATE INDEX {{.Name "receipts_delivered_at"}} ON {{.Table "receipts"}} (delivered_at);

-- Ids that a consumer has already handled.
CREATE TABLE {{.Table "inbox"}} (
    consumer text        NOT NULL,
    id       text        NOT NULL,
    seen_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer, id),
    CHECK (consumer <> '' AND id <> '' AND octet_length(consumer) <= 1000 AND octet_length(id) <= 1000)
);

CREATE INDEX {{.Name "inbox_seen_at"}} ON {{.Table "inbox"}} (seen_at);

-- Publishes in the caller's transaction, as an INSERT does, and returns the notification's
-- id.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION {{.Table "publish"}}(type text, key text, payload {{.Payload}}, metadata jsonb DEFAULT '{}',
    deliver_at timestamptz DEFAULT NULL, id text DEFAULT NULL, version integer DEFAULT 1) RETURNS text LANGUAGE plpgsql{{.PathOfFunctions}} AS $$
DECLARE
    given text := coalesce(id, gen_random_uuid()::text);
BEGIN
    INSERT INTO {{.Log}} (id, type, version, key, deliver_at, metadata, payload)
    VALUES (given, type, version, coalesce(key, ''), deliver_at, coalesce(metadata, '{}'), payload);
    RETURN given;
END $$;
-- +goose StatementEnd

-- Cancels notifications with an id that are still scheduled, in the caller's transaction.
-- Returns how many: 0 or 1, unless publishers used one id for several.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION {{.Table "cancel"}}(id text) RETURNS integer LANGUAGE plpgsql{{.PathOfFunctions}} AS $$
#variable_conflict use_column
DECLARE
    found_rows integer;
BEGIN
    IF row_security_active({{.Literal ""}}::regclass) OR row_security_active({{.Literal "parked"}}::regclass) THEN
        RAISE EXCEPTION 'row-level security hides what is scheduled from this role, and nothing is cancelled'
            USING ERRCODE = 'insufficient_privilege', HINT = 'ALTER ROLE … BYPASSRLS, or disable row-level security on the tables of the outbox';
    END IF;
    INSERT INTO {{.Table "cancelled"}} ("offset", id)
        SELECT "offset", id FROM {{.Log}} WHERE id = $1 AND deliver_at > clock_timestamp()
        UNION SELECT "offset", id FROM {{.Table "parked"}} WHERE id = $1 AND state = 'scheduled' AND due_at > clock_timestamp()
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS found_rows = ROW_COUNT;
    RETURN found_rows;
END $$;
-- +goose StatementEnd

-- Notes in the caller's transaction that a consumer handles an id. Returns whether this is
-- the first time.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION {{.Table "first"}}(consumer text, id text) RETURNS boolean LANGUAGE plpgsql{{.PathOfFunctions}} AS $$
BEGIN
    INSERT INTO {{.Table "inbox"}} (consumer, id) VALUES (consumer, id) ON CONFLICT DO NOTHING;
    RETURN FOUND;
END $$;
-- +goose StatementEnd

-- The schedules, with the times when they are due.
CREATE TABLE {{.Table "schedules"}} (
    name         text        PRIMARY KEY,
    id           text        NOT NULL, -- unique to this row, also if the name is used again
    spec         text        NOT NULL DEFAULT '',
    missed       text        NOT NULL DEFAULT '',
    last_tick    timestamptz,
    next_tick    timestamptz NOT NULL DEFAULT now(),
    requested_at timestamptz,
    paused       boolean     NOT NULL DEFAULT false,
    revision     bigint      NOT NULL DEFAULT 0,
    updated_at   timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

-- Actions of people: on parked deliveries, on sinks and on the log.
CREATE TABLE {{.Table "actions"}} (
    id           text        PRIMARY KEY,
    at           timestamptz NOT NULL DEFAULT now(),
    who          text        NOT NULL,
    address      text        NOT NULL DEFAULT '', -- of the client that requested it
    reason       text        NOT NULL DEFAULT '',
    action       text        NOT NULL,
    filter       jsonb       NOT NULL,
    request      text        NOT NULL DEFAULT '', -- digest of the request, to recognize a repeated one
    planned      bigint      NOT NULL DEFAULT 0,
    count        bigint      NOT NULL DEFAULT 0,
    through      bigint      NOT NULL DEFAULT 0, -- the offset that a replay has reached
    updated_at   timestamptz NOT NULL DEFAULT now(), -- by its last batch
    cancelled_at timestamptz, -- it stops then
    cancelled_by text        NOT NULL DEFAULT '',
    ended_at     timestamptz -- null while it runs, or if it was interrupted
);

CREATE INDEX {{.Name "actions_at"}} ON {{.Table "actions"}} (at);
