-- +goose Up

-- The log takes only what can also be parked, read by Go, written as JSON and sent on: times of
-- the years 1 to 9999 without the first millisecond, which stands for a time that is not set,
-- texts without NUL, and names that are not too long. A BLOB is another value than the text with the
-- same bytes: no route would match a type that was written as one. It is a trigger, since SQLite
-- cannot add a CHECK to a table.
-- +goose StatementBegin
CREATE TRIGGER {{.Table "values"}} BEFORE INSERT ON {{.Log}} WHEN NOT (
    'blob' NOT IN (typeof(NEW.type), typeof(NEW.id), typeof(NEW.key), typeof(NEW.metadata), typeof(NEW.occurred_on), typeof(NEW.deliver_at))
    AND julianday(NEW.occurred_on) > julianday('0001-01-01') AND (NEW.deliver_at IS NULL OR julianday(NEW.deliver_at) > julianday('0001-01-01'))
    AND length(CAST(NEW.type AS BLOB)) <= 255 AND length(CAST(NEW.id AS BLOB)) <= 255 AND length(CAST(NEW.key AS BLOB)) <= 1024
    AND instr(CAST(NEW.type || NEW.id || NEW.key || NEW.metadata AS TEXT), char(0)) = 0)
BEGIN
    SELECT RAISE(ABORT, 'constraint failed: type, id, key, metadata, occurred_on and deliver_at are texts, not BLOBs; occurred_on and deliver_at have the years 1 to 9999 in UTC, type and id at most 255 bytes, key at most 1024 bytes, and texts no NUL');
END;
-- +goose StatementEnd

-- Readers go on behind the highest offset, and begin behind 0: a row with a chosen offset at or
-- below it would never be read. This trigger runs after the INSERT, when an offset that was not
-- given is known, and sees the highest offset from before the statement.
-- +goose StatementBegin
CREATE TRIGGER {{.Table "offsets"}} AFTER INSERT ON {{.Log}}
    WHEN NEW."offset" <= max(0, coalesce((SELECT seq FROM sqlite_sequence WHERE name = '{{.}}'), 0))
BEGIN
    SELECT RAISE(ABORT, 'constraint failed: no reader would find this offset, leave the column out');
END;
-- +goose StatementEnd
