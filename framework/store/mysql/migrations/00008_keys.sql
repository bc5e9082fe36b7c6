-- +goose NO TRANSACTION
-- +goose Up

-- The keys of private values. The rows without a subject are roots, which wrap the keys of subjects.
CREATE TABLE IF NOT EXISTS {{.Table "keys"}} (
    id         VARCHAR(64)  NOT NULL,
    subject    VARCHAR(64)  NOT NULL, -- a keyed hash of the person
    wrapped    VARCHAR(255) NOT NULL, -- empty once it is erased
    under      VARCHAR(255) NOT NULL, -- what wraps it
    created_at DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    erased_at  DATETIME(6)  NULL,
    PRIMARY KEY (id),
    KEY {{.Name "keys_subject"}} (subject, created_at, id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC CHARACTER SET utf8mb4 COLLATE {{.Collation}};
