{{define "states"}}CHECK (state IN (''retrying'', ''scheduled'', ''blocked'', ''dead'', ''settling'', ''quiet'', ''collecting'')){{end -}}
-- +goose NO TRANSACTION
-- +goose Up

-- Deliveries that wait for the hours of their sink, and members of collections. The group and the number of a
-- collection, which it has once it is closed, stay when it is dead. The index of keys has the state, since members of
-- collections have keys too, and hold none back.
{{if .MariaDB}}
ALTER TABLE {{.Table "parked"}} DROP CONSTRAINT IF EXISTS {{.Name "parked_states"}};
ALTER TABLE {{.Table "parked"}}
    ADD CONSTRAINT {{.Name "parked_states"}} CHECK (state IN ('retrying', 'scheduled', 'blocked', 'dead', 'settling', 'quiet', 'collecting')),
    ADD COLUMN IF NOT EXISTS collect_group VARBINARY(1024) NOT NULL DEFAULT '', ADD COLUMN IF NOT EXISTS collection VARCHAR(64) NOT NULL DEFAULT '',
    ADD KEY IF NOT EXISTS {{.Name "parked_group"}} (sink, collect_group, collection, `offset`),
    DROP KEY IF EXISTS {{.Name "parked_key"}}, ADD KEY {{.Name "parked_key"}} (sink, `key`, `offset`, state);
{{else}}
-- An interrupted migration may have changed the table, all at once.
SET @waybill_add = (SELECT IF(COUNT(*) > 0, 'DO 0', 'ALTER TABLE {{.Table "parked"}} DROP CHECK {{.Name "parked_states"}}, ADD CONSTRAINT {{.Name "parked_states"}} {{template "states"}}, ADD COLUMN collect_group VARBINARY(1024) NOT NULL DEFAULT '''', ADD COLUMN collection VARCHAR(64) NOT NULL DEFAULT '''', ADD KEY {{.Name "parked_group"}} (sink, collect_group, collection, `offset`), DROP KEY {{.Name "parked_key"}}, ADD KEY {{.Name "parked_key"}} (sink, `key`, `offset`, state)')
    FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND CONCAT('`', TABLE_NAME, '`') = '{{.Table "parked"}}' AND COLUMN_NAME = 'collect_group');
PREPARE waybill_add FROM @waybill_add;
EXECUTE waybill_add;
DEALLOCATE PREPARE waybill_add;
{{end}}
-- The groups with members: how many are in no closed collection, and when these are due.
CREATE TABLE IF NOT EXISTS {{.Table "collections"}} (
    sink          VARCHAR(255)    NOT NULL,
    collect_group VARBINARY(1024) NOT NULL,
    slot          SMALLINT        NOT NULL,
    members       BIGINT          NOT NULL,
    due_at        DATETIME(6)     NOT NULL,
    due_by        DATETIME(6)     NOT NULL, -- the latest due_at
    closed        VARCHAR(64)     NOT NULL DEFAULT '', -- the number of the collection that is being delivered
    PRIMARY KEY (sink, collect_group),
    KEY {{.Name "collections_due"}} (sink, closed, due_at)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC CHARACTER SET utf8mb4 COLLATE {{.Collation}};
