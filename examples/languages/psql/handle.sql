-- psql -v id=NOTIFICATION -v order=o-17 -f handle.sql: writes an invoice once, however often the notification is delivered
\set ON_ERROR_STOP on
BEGIN;
SELECT outbox_first('invoices'::text, :'id'::text) AS first \gset
\if :first
INSERT INTO invoices (order_id) VALUES (:'order');
\endif
COMMIT;
\echo :first
