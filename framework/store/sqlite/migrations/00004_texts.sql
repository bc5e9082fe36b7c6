-- +goose Up

-- A BLOB is another value than the text with the same bytes: no route would match a type that was
-- written as one. An application that binds bytes learns of it at its INSERT.
-- +goose StatementBegin
CREATE TRIGGER {{.Table "texts"}} BEFORE INSERT ON {{.Log}} WHEN typeof(NEW.type) <> 'text' OR typeof(NEW.id) <> 'text'
    OR typeof(NEW.key) <> 'text' OR typeof(NEW.metadata) <> 'text' OR typeof(NEW.occurred_on) <> 'text' OR typeof(NEW.deliver_at) NOT IN ('text', 'null')
BEGIN
    SELECT RAISE(ABORT, 'constraint failed: type, id, key, metadata, occurred_on and deliver_at are texts, not BLOBs');
END;
-- +goose StatementEnd
