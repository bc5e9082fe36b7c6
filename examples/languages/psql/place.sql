-- psql -v id=o-17 -v customer=c-1 -v product=kite -f place.sql: stores an order and its notification, both or neither
\set ON_ERROR_STOP on
BEGIN;
SELECT outbox_publish('order.placed'::text, :'customer'::text, json_build_object('order_id', :'id'::text, 'product', :'product'::text));
INSERT INTO orders (id, product) VALUES (:'id', :'product');
COMMIT;
