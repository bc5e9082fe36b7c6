{{define "end"}}{{range .Triggers}}DROP TRIGGER {{.}} ON {{$.Table}};
{{end}}{{range .Functions}}DROP FUNCTION {{.}}();
{{end}}{{end}}

{{- /* The key and the named columns of the rows of a transition table. */ -}}
{{define "rows"}}SELECT coalesce({{.KeyColumn}}::text, '') AS key, pg_catalog.row_to_json(c.*) AS data
            FROM {{.From}} t, LATERAL (SELECT {{.Selected}}) c{{end}}

{{- /* The same, with a row's identity, its place, and how often the row has occurred up to there: a
       statement may write a row several times, for example if two foreign keys cascade to it. */ -}}
{{define "numbered"}}SELECT *, pg_catalog.row_number() OVER (PARTITION BY r.identity ORDER BY r.place) AS nth
            FROM (SELECT coalesce({{.KeyColumn}}::text, '') AS key, {{.Identity}} AS identity, pg_catalog.row_to_json(c.*) AS data,
                pg_catalog.row_number() OVER () AS place
                FROM {{.From}} t, LATERAL (SELECT {{.Selected}}) c) r{{end}}

{{- define "remove"}}{{template "end" .}}{{end}}

{{- define "add"}}LOCK TABLE ONLY {{.Table}} IN ACCESS EXCLUSIVE MODE;
{{template "end" .}}DROP FUNCTION IF EXISTS {{.Function}}();
-- The texts of values do not depend on the session that writes: otherwise one row would have several
-- keys, and rounded numbers would hide that a row has changed.
CREATE FUNCTION {{.Function}}() RETURNS trigger LANGUAGE plpgsql
    SET datestyle = 'ISO, MDY' SET intervalstyle = postgres SET timezone = 'UTC' SET bytea_output = hex SET extra_float_digits = 1
    AS $waybill$
BEGIN
    CASE TG_OP
    WHEN 'INSERT' THEN
        INSERT INTO {{.Log}} (type, key, payload)
        SELECT {{.TypeOf "inserted"}}, n.key, {{.Payload "NULL::json" "n.data"}}
        FROM ({{template "rows" (.Rows "new_rows")}}) n;
    WHEN 'DELETE' THEN
        INSERT INTO {{.Log}} (type, key, payload)
        SELECT {{.TypeOf "deleted"}}, o.key, {{.Payload "o.data" "NULL::json"}}
        FROM ({{template "rows" (.Rows "old_rows")}}) o;
    WHEN 'UPDATE' THEN
        INSERT INTO {{.Log}} (type, key, payload)
        SELECT CASE WHEN o.data IS NULL THEN {{.TypeOf "inserted"}} WHEN n.data IS NULL THEN {{.TypeOf "deleted"}} ELSE {{.TypeOf "updated"}} END,
            coalesce(n.key, o.key), {{.Payload "o.data" "n.data"}}
        FROM ({{template "numbered" (.Rows "old_rows")}}) o
        FULL JOIN ({{template "numbered" (.Rows "new_rows")}}) n ON n.identity OPERATOR(pg_catalog.=) o.identity AND n.nth OPERATOR(pg_catalog.=) o.nth
        WHERE o.data::text IS DISTINCT FROM n.data::text
        ORDER BY n.data IS NOT NULL, coalesce(n.place, o.place); -- a row that was deleted under one key comes first
    WHEN 'TRUNCATE' THEN
        RAISE EXCEPTION 'TRUNCATE of %.% would not be captured', TG_TABLE_SCHEMA, TG_TABLE_NAME
            USING ERRCODE = 'feature_not_supported', HINT = 'Use DELETE, or end the capture first: waybill migrate --uncapture';
    END CASE;
    RETURN NULL;
END $waybill$;
{{if .Captures "insert"}}CREATE TRIGGER {{.Trigger "insert"}} AFTER INSERT ON {{.Table}}
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION {{.Function}}();
{{end}}{{if .Captures "update"}}CREATE TRIGGER {{.Trigger "update"}} AFTER UPDATE ON {{.Table}}
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION {{.Function}}();
{{end}}{{if .Captures "delete"}}CREATE TRIGGER {{.Trigger "delete"}} AFTER DELETE ON {{.Table}}
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION {{.Function}}();
CREATE TRIGGER {{.Trigger "truncate"}} BEFORE TRUNCATE ON {{.Table}}
    FOR EACH STATEMENT EXECUTE FUNCTION {{.Function}}();
{{end}}-- This one never runs. It keeps the columns from being dropped or given another type,
-- and its arguments say what is captured.
CREATE TRIGGER {{.Trigger "columns"}} AFTER UPDATE OF {{.Guarded}} ON {{.Table}}
    FOR EACH STATEMENT WHEN (false) EXECUTE FUNCTION {{.Function}}({{.Arguments}});
{{end}}
