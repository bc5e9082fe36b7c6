-- +goose NO TRANSACTION
-- +goose Up

-- The last failed attempts of a parked delivery, the newest first, as JSON.
{{if .MariaDB}}
ALTER TABLE {{.Table "parked"}} ADD COLUMN IF NOT EXISTS attempts TEXT NOT NULL DEFAULT ('');
{{else}}
-- An interrupted migration may have added it.
SET @waybill_add = (SELECT IF(COUNT(*) > 0, 'DO 0', 'ALTER TABLE {{.Table "parked"}} ADD COLUMN attempts TEXT NOT NULL DEFAULT ('''')')
    FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND CONCAT('`', TABLE_NAME, '`') = '{{.Table "parked"}}' AND COLUMN_NAME = 'attempts');
PREPARE waybill_add FROM @waybill_add;
EXECUTE waybill_add;
DEALLOCATE PREPARE waybill_add;
{{end}}
