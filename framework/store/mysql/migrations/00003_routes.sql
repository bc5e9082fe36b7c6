-- +goose NO TRANSACTION
-- +goose Up

-- The types that a sink takes, as JSON: now, once no lane of it is leased, and, in lane 0, up to
-- earlier places. Null before its first forwarder.
{{if .MariaDB}}
ALTER TABLE {{.Table "cursors"}} ADD COLUMN IF NOT EXISTS types LONGTEXT NULL, ADD COLUMN IF NOT EXISTS types_wanted LONGTEXT NULL,
    ADD COLUMN IF NOT EXISTS types_before LONGTEXT NULL;
{{else}}
-- An interrupted migration may have added the columns, all at once.
SET @waybill_add = (SELECT IF(COUNT(*) > 0, 'DO 0', 'ALTER TABLE {{.Table "cursors"}} ADD COLUMN types LONGTEXT NULL, ADD COLUMN types_wanted LONGTEXT NULL, ADD COLUMN types_before LONGTEXT NULL')
    FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND CONCAT('`', TABLE_NAME, '`') = '{{.Table "cursors"}}' AND COLUMN_NAME = 'types');
PREPARE waybill_add FROM @waybill_add;
EXECUTE waybill_add;
DEALLOCATE PREPARE waybill_add;
{{end}}
