-- +goose NO TRANSACTION
-- +goose Up

-- The endpoints of customers. The computed column is last: to MySQL a column whose default is an
-- expression is a computed one.
CREATE TABLE IF NOT EXISTS {{.Table "endpoints"}} (
    id              VARCHAR(255) NOT NULL,
    tenant          VARCHAR(255) NOT NULL,
    url             MEDIUMTEXT   NOT NULL,
    description     MEDIUMTEXT   NOT NULL,
    types           MEDIUMTEXT   NOT NULL, -- patterns, as JSON
    only_if         MEDIUMTEXT   NOT NULL, -- the condition
    private         MEDIUMTEXT   NOT NULL,
    rate            VARCHAR(255) NOT NULL,
    disabled_reason MEDIUMTEXT   NOT NULL DEFAULT (''), -- empty if it is enabled
    disabled_at     DATETIME(6)  NULL,
    failing_since   DATETIME(6)  NULL,
    trouble         MEDIUMTEXT   NOT NULL DEFAULT (''),
    created_at      DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    changed_at      DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    version         BIGINT       NOT NULL DEFAULT 1,
    unwell          BOOLEAN      GENERATED ALWAYS AS (LENGTH(disabled_reason) > 0 OR failing_since IS NOT NULL OR LENGTH(trouble) > 0) STORED,
    PRIMARY KEY (id),
    KEY {{.Name "endpoints_tenant"}} (tenant, id),
    KEY {{.Name "endpoints_unwell"}} (unwell, tenant, id),
    CONSTRAINT {{.Name "endpoints_names"}} CHECK (id <> '' AND LENGTH(id) <= 255 AND LENGTH(tenant) <= 255)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC CHARACTER SET utf8mb4 COLLATE {{.Collation}};

-- The attempts at them. An id is a UUIDv7, so attempts are in the order of their ids. The last columns of
-- the first index are for counts, which need not read the rows.
CREATE TABLE IF NOT EXISTS {{.Table "attempts"}} (
    id           VARCHAR(64)  NOT NULL,
    endpoint     VARCHAR(255) NOT NULL,
    endpoint_created_at DATETIME(6)  NOT NULL, -- one that is made again with the same id has no attempts yet
    tenant       VARCHAR(255) NOT NULL,
    delivery     VARCHAR(255) NOT NULL,
    notification VARCHAR(255) NOT NULL,
    log_offset   BIGINT       NOT NULL, -- of the delivery
    type         VARCHAR(255) NOT NULL,
    number       INT          NOT NULL,
    at           DATETIME(6)  NOT NULL,
    hour         BIGINT       NOT NULL, -- of at, since 1970
    duration     BIGINT       NOT NULL, -- in microseconds
    status       INT          NOT NULL,
    failed       BOOLEAN      NOT NULL,
    error        MEDIUMTEXT   NOT NULL,
    request      MEDIUMTEXT   NOT NULL, -- header and body, as JSON
    answer       MEDIUMTEXT   NOT NULL,
    until        DATETIME(6)  NOT NULL,
    PRIMARY KEY (id),
    KEY {{.Name "attempts_endpoint"}} (endpoint, id, hour, failed, endpoint_created_at),
    KEY {{.Name "attempts_tenant"}} (tenant, id),
    KEY {{.Name "attempts_delivery"}} (delivery, id),
    KEY {{.Name "attempts_until"}} (until)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC CHARACTER SET utf8mb4 COLLATE {{.Collation}};
