{{define "valid"}}COALESCE({{.}} >= '0001-01-01 00:00:00.001' AND DAYOFMONTH({{.}}) BETWEEN 1 AND DAYOFMONTH(LAST_DAY({{.}})), FALSE){{end -}}
{{define "times"}}CHECK ({{template "valid" "occurred_on"}} AND (deliver_at IS NULL OR {{template "valid" "deliver_at"}})){{end -}}
-- +goose NO TRANSACTION
-- +goose Up

-- The log takes only times that can also be parked, read by Go, written as JSON and sent on:
-- dates that exist, without the first millisecond of year 1, which stands for a time that is
-- not set. A server that is not strict also stores 0000-00-00, 2026-00-00 and 2026-02-31.
{{if .MariaDB}}
-- Rows that are already there stay as they are, and are not searched.
SET STATEMENT check_constraint_checks = OFF FOR
ALTER TABLE {{.Log}} ADD CONSTRAINT IF NOT EXISTS {{.Name "times"}} {{template "times"}};
{{else}}
-- MySQL checks the rows that are already there, too.
UPDATE IGNORE {{.Log}} SET occurred_on = '0001-01-01 00:00:00.001' WHERE NOT {{template "valid" "occurred_on"}};
UPDATE IGNORE {{.Log}} SET deliver_at = '0001-01-01 00:00:00.001' WHERE deliver_at IS NOT NULL AND NOT {{template "valid" "deliver_at"}};

-- An interrupted migration may have added the constraint.
SET @waybill_drop = (SELECT IF(COUNT(*) > 0, 'ALTER TABLE {{.Log}} DROP CHECK {{.Name "times"}}', 'DO 0')
    FROM information_schema.TABLE_CONSTRAINTS WHERE CONSTRAINT_SCHEMA = DATABASE() AND CONCAT('`', CONSTRAINT_NAME, '`') = '{{.Name "times"}}');
PREPARE waybill_drop FROM @waybill_drop;
EXECUTE waybill_drop;
DEALLOCATE PREPARE waybill_drop;
ALTER TABLE {{.Log}} ADD CONSTRAINT {{.Name "times"}} {{template "times"}};
{{end}}
