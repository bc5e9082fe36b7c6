-- +goose NO TRANSACTION
-- +goose Up

-- The last failed attempts of a parked delivery, the newest first, as JSON; NULL is none. With an expression as default,
-- MySQL would copy the table under a lock against writers.
{{if .MariaDB}}
ALTER TABLE {{.Table "parked"}} ADD COLUMN IF NOT EXISTS attempts TEXT NULL;
{{else}}
-- An interrupted migration may have added it.
SET @waybill_add = (SELECT IF(COUNT(*) > 0, 'DO 0', 'ALTER TABLE {{.Table "parked"}} ADD COLUMN attempts TEXT NULL')
    FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND CONCAT('`', TABLE_NAME, '`') = '{{.Table "parked"}}' AND COLUMN_NAME = 'attempts');
PREPARE waybill_add FROM @waybill_add;
EXECUTE waybill_add;
DEALLOCATE PREPARE waybill_add;
{{end}}
