-- +goose Up

-- The log takes only what can also be parked, read by Go, written as JSON and sent on: versions
-- above 0, and times of the years 1 to 9999 without the first millisecond, which stands for a
-- time that is not set. BETWEEN also refuses infinity. NOT VALID: rows that are already there
-- stay as they are, and are not searched.
ALTER TABLE {{.Log}}
    DROP CONSTRAINT {{.Name "values"}},
    ADD CONSTRAINT {{.Name "values"}} CHECK ("offset" > 0 AND version > 0 AND jsonb_typeof(metadata) = 'object'
        AND occurred_on BETWEEN '0001-01-01 00:00:00.001+00' AND '9999-12-31 23:59:59.999999+00'
        AND deliver_at BETWEEN '0001-01-01 00:00:00.001+00' AND '9999-12-31 23:59:59.999999+00') NOT VALID;
