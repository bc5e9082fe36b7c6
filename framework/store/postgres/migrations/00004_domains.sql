-- +goose Up

-- Lets an INSERT cost the server less. A session keeps the constraints of domains, while each INSERT
-- parses those of a table, and computes its columns again; readers compute the slot now. The domains
-- get their constraints last, so that the table is not rewritten, and NOT VALID, so that rows that
-- are already there stay as they are.
CREATE DOMAIN {{.Table "name"}} AS text;
CREATE DOMAIN {{.Table "key"}} AS text;
CREATE DOMAIN {{.Table "version"}} AS smallint;
CREATE DOMAIN {{.Table "time"}} AS timestamptz;
CREATE DOMAIN {{.Table "metadata"}} AS jsonb;

ALTER TABLE {{.Log}}
    DROP CONSTRAINT {{.Name "names"}},
    DROP CONSTRAINT {{.Name "values"}},
    DROP COLUMN slot,
    ALTER COLUMN id TYPE {{.Table "name"}},
    ALTER COLUMN type TYPE {{.Table "name"}},
    ALTER COLUMN version TYPE {{.Table "version"}},
    ALTER COLUMN key TYPE {{.Table "key"}},
    ALTER COLUMN occurred_on TYPE {{.Table "time"}},
    ALTER COLUMN deliver_at TYPE {{.Table "time"}},
    ALTER COLUMN metadata TYPE {{.Table "metadata"}};

-- The log takes only what can also be parked, indexed, read by Go, written as JSON and sent on. The
-- first millisecond of the year 1 stands for a time that is not set. BETWEEN also refuses infinity.
ALTER DOMAIN {{.Table "name"}} ADD CONSTRAINT has_1_to_255_bytes CHECK (octet_length(VALUE) BETWEEN 1 AND 255) NOT VALID;
ALTER DOMAIN {{.Table "key"}} ADD CONSTRAINT has_at_most_1024_bytes CHECK (octet_length(VALUE) <= 1024) NOT VALID;
ALTER DOMAIN {{.Table "version"}} ADD CONSTRAINT is_above_0 CHECK (VALUE > 0) NOT VALID;
ALTER DOMAIN {{.Table "time"}} ADD CONSTRAINT is_in_years_1_to_9999
    CHECK (VALUE BETWEEN '0001-01-01 00:00:00.001+00' AND '9999-12-31 23:59:59.999999+00') NOT VALID;
ALTER DOMAIN {{.Table "metadata"}} ADD CONSTRAINT is_an_object CHECK (jsonb_typeof(VALUE) = 'object') NOT VALID;
