-- +goose NO TRANSACTION
-- +goose Up

-- The session by which the server knows that the forwarder is alive: the server's life, and a key of a
-- lock. Empty without one; it begins with - if it was withdrawn.
{{if .MariaDB}}
ALTER TABLE {{.Table "forwarders"}} ADD COLUMN IF NOT EXISTS presence VARCHAR(255) NOT NULL DEFAULT '';
{{else}}
SET @waybill_add = (SELECT IF(COUNT(*) > 0, 'DO 0', 'ALTER TABLE {{.Table "forwarders"}} ADD COLUMN presence VARCHAR(255) NOT NULL DEFAULT ''''')
    FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND CONCAT('`', TABLE_NAME, '`') = '{{.Table "forwarders"}}' AND COLUMN_NAME = 'presence');
PREPARE waybill_add FROM @waybill_add;
EXECUTE waybill_add;
DEALLOCATE PREPARE waybill_add;
{{end}}
