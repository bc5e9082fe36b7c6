-- +goose Up

-- The endpoints of customers.
CREATE TABLE {{.Table "endpoints"}} (
    id              TEXT    PRIMARY KEY,
    tenant          TEXT    NOT NULL,
    url             TEXT    NOT NULL,
    description     TEXT    NOT NULL,
    types           TEXT    NOT NULL, -- patterns, as JSON
    only_if         TEXT    NOT NULL, -- the condition
    private         TEXT    NOT NULL,
    rate            TEXT    NOT NULL,
    disabled_reason TEXT    NOT NULL DEFAULT '', -- empty if it is enabled
    disabled_at     TEXT,
    failing_since   TEXT,
    trouble         TEXT    NOT NULL DEFAULT '',
    created_at      TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    changed_at      TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    version         INTEGER NOT NULL DEFAULT 1,
    unwell          INTEGER NOT NULL GENERATED ALWAYS AS (disabled_reason <> '' OR failing_since IS NOT NULL OR trouble <> '') STORED,
    CHECK (id <> '' AND length(CAST(id AS BLOB)) <= 255 AND length(CAST(tenant AS BLOB)) <= 255)
);

CREATE INDEX {{.Table "endpoints_tenant"}} ON {{.Table "endpoints"}} (tenant, id);
CREATE INDEX {{.Table "endpoints_unwell"}} ON {{.Table "endpoints"}} (unwell, tenant, id);

-- The attempts at them. An id is a UUIDv7, so attempts are in the order of their ids.
CREATE TABLE {{.Table "attempts"}} (
    id           TEXT    PRIMARY KEY,
    endpoint     TEXT    NOT NULL,
    endpoint_created_at TEXT    NOT NULL, -- one that is made again with the same id has no attempts yet
    tenant       TEXT    NOT NULL,
    delivery     TEXT    NOT NULL,
    notification TEXT    NOT NULL,
    log_offset   INTEGER NOT NULL, -- of the delivery
    type         TEXT    NOT NULL,
    number       INTEGER NOT NULL,
    at           TEXT    NOT NULL,
    hour         INTEGER NOT NULL, -- of at, since 1970
    duration     INTEGER NOT NULL, -- in microseconds
    status       INTEGER NOT NULL,
    failed       INTEGER NOT NULL,
    error        TEXT    NOT NULL,
    request      TEXT    NOT NULL, -- header and body, as JSON
    answer       TEXT    NOT NULL,
    until        TEXT    NOT NULL
);

-- The last columns are for counts, which need not read the rows.
CREATE INDEX {{.Table "attempts_endpoint"}} ON {{.Table "attempts"}} (endpoint, id, hour, failed, endpoint_created_at);
CREATE INDEX {{.Table "attempts_tenant"}} ON {{.Table "attempts"}} (tenant, id);
CREATE INDEX {{.Table "attempts_delivery"}} ON {{.Table "attempts"}} (delivery, id);
CREATE INDEX {{.Table "attempts_until"}} ON {{.Table "attempts"}} (until);
