-- +goose Up

-- The endpoints of customers. Ids and tenants are in the order of their bytes, as in other databases.
CREATE TABLE {{.Table "endpoints"}} (
    id              text COLLATE "C" PRIMARY KEY,
    tenant          text COLLATE "C" NOT NULL,
    url             text        NOT NULL,
    description     text        NOT NULL,
    types           text        NOT NULL, -- patterns, as JSON
    only_if         text        NOT NULL, -- the condition
    private         text        NOT NULL,
    rate            text        NOT NULL,
    disabled_reason text        NOT NULL DEFAULT '', -- empty if it is enabled
    disabled_at     timestamptz,
    failing_since   timestamptz,
    trouble         text        NOT NULL DEFAULT '',
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    changed_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    version         bigint      NOT NULL DEFAULT 1,
    unwell          boolean     NOT NULL GENERATED ALWAYS AS (disabled_reason <> '' OR failing_since IS NOT NULL OR trouble <> '') STORED,
    CHECK (id <> '' AND octet_length(id) <= 255 AND octet_length(tenant) <= 255)
) WITH (fillfactor = 80);

CREATE INDEX {{.Name "endpoints_tenant"}} ON {{.Table "endpoints"}} (tenant, id);
CREATE INDEX {{.Name "endpoints_unwell"}} ON {{.Table "endpoints"}} (unwell, tenant, id);

-- The attempts at them. An id is a UUIDv7, so attempts are in the order of their ids.
CREATE TABLE {{.Table "attempts"}} (
    id           text COLLATE "C" PRIMARY KEY,
    endpoint     text COLLATE "C" NOT NULL,
    endpoint_created_at timestamptz NOT NULL, -- one that is made again with the same id has no attempts yet
    tenant       text COLLATE "C" NOT NULL,
    delivery     text        NOT NULL,
    notification text        NOT NULL,
    log_offset   bigint      NOT NULL, -- of the delivery
    type         text        NOT NULL,
    number       integer     NOT NULL,
    at           timestamptz NOT NULL,
    hour         bigint      NOT NULL, -- of at, since 1970
    duration     bigint      NOT NULL, -- in microseconds
    status       integer     NOT NULL,
    failed       boolean     NOT NULL,
    error        text        NOT NULL,
    request      text        NOT NULL, -- header and body, as JSON
    answer       text        NOT NULL,
    until        timestamptz NOT NULL
);

-- The last columns are for counts, which need not read the rows.
CREATE INDEX {{.Name "attempts_endpoint"}} ON {{.Table "attempts"}} (endpoint, id, hour, failed, endpoint_created_at);
CREATE INDEX {{.Name "attempts_tenant"}} ON {{.Table "attempts"}} (tenant, id);
CREATE INDEX {{.Name "attempts_delivery"}} ON {{.Table "attempts"}} (delivery, id);
CREATE INDEX {{.Name "attempts_until"}} ON {{.Table "attempts"}} (until);
