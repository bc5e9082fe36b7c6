-- +goose Up
-- What was two triggers is one, without a list after IN: SQLite makes a table in memory of such a list, for each
-- INSERT. A text is less than any BLOB. Readers go on behind the highest offset, and begin behind 0: a row
-- with a chosen offset at or below it would never be read. The trigger runs after the INSERT, when an offset that
-- was not given is known, and sees the highest offset from before the statement.
DROP TRIGGER {{.Table "values"}};
DROP TRIGGER {{.Table "offsets"}};

-- +goose StatementBegin
CREATE TRIGGER {{.Table "values"}} AFTER INSERT ON {{.Log}} WHEN
    NEW."offset" <= 0 OR NEW."offset" <= (SELECT seq FROM sqlite_sequence WHERE name = '{{.}}') OR NOT (
        NEW.type < x'' AND NEW.id < x'' AND NEW.key < x'' AND NEW.metadata < x'' AND NEW.occurred_on < x''
        AND (NEW.occurred_on > '0002' OR julianday(NEW.occurred_on) > julianday('0001-01-01'))
        AND (NEW.deliver_at IS NULL OR NEW.deliver_at < x'' AND julianday(NEW.deliver_at) > julianday('0001-01-01'))
        AND (length(CAST(NEW.type || NEW.id || NEW.key AS BLOB)) <= 255
            OR length(CAST(NEW.type AS BLOB)) <= 255 AND length(CAST(NEW.id AS BLOB)) <= 255 AND length(CAST(NEW.key AS BLOB)) <= 1024)
        AND instr(NEW.type || NEW.id || NEW.key || NEW.metadata, char(0)) = 0)
BEGIN
    SELECT RAISE(ABORT, 'constraint failed: no reader would find this offset, leave the column out')
        WHERE NEW."offset" <= max(0, coalesce((SELECT seq FROM sqlite_sequence WHERE name = '{{.}}'), 0));
    SELECT RAISE(ABORT, 'constraint failed: type, id, key, metadata, occurred_on and deliver_at are texts, not BLOBs; occurred_on and deliver_at have the years 1 to 9999 in UTC, type and id at most 255 bytes, key at most 1024 bytes, and texts no NUL');
END;
-- +goose StatementEnd
