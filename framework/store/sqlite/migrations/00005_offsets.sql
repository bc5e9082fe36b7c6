-- +goose Up

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
