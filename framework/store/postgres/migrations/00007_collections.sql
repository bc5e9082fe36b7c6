-- +goose Up

-- Deliveries that wait for the hours of their sink, and members of collections. The group and the number of a
-- collection stay when it is dead.
ALTER TABLE {{.Table "parked"}}
    DROP CONSTRAINT {{.Name "parked_state_check"}},
    ADD CONSTRAINT {{.Name "parked_state_check"}} CHECK (state IN ('retrying', 'scheduled', 'blocked', 'dead', 'settling', 'quiet', 'collecting')),
    ADD COLUMN collect_group text NOT NULL DEFAULT '',
    ADD COLUMN collection text NOT NULL DEFAULT ''; -- its number, once it is closed

DROP INDEX {{.Table "parked_key"}};
CREATE INDEX {{.Name "parked_key"}} ON {{.Table "parked"}} (sink, key, "offset")
    WHERE key <> '' AND state IN ('retrying', 'blocked', 'dead', 'quiet');
CREATE INDEX {{.Name "parked_group"}} ON {{.Table "parked"}} (sink, collect_group, collection, "offset", id) WHERE collect_group <> '';

-- The groups with members: how many are in no closed collection, and when these are due.
CREATE TABLE {{.Table "collections"}} (
    sink          text        NOT NULL,
    collect_group text COLLATE "C" NOT NULL,
    slot          smallint    NOT NULL,
    members       bigint      NOT NULL,
    due_at        timestamptz NOT NULL,
    due_by        timestamptz NOT NULL, -- the latest due_at
    closed        text        NOT NULL DEFAULT '', -- the number of the collection that is being delivered
    PRIMARY KEY (sink, collect_group)
) WITH (fillfactor = 80);

CREATE INDEX {{.Name "collections_due"}} ON {{.Table "collections"}} (sink, closed, due_at);
