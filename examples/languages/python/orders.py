"""python orders.py place o-17 c-1 kite; python orders.py handle NOTIFICATION o-17"""
import json
import os
import sys

import psycopg


def place(connection, order, customer, product):
    """Stores an order and its notification, both or neither."""
    payload = json.dumps({"order_id": order, "product": product})
    with connection.transaction():
        (id,) = connection.execute("SELECT outbox_publish('order.placed'::text, %s::text, %s::json)", (customer, payload)).fetchone()
        connection.execute("INSERT INTO orders (id, product) VALUES (%s, %s)", (order, product))
    return f"{id} {payload}"


def handle(connection, id, order):
    """Writes an invoice once, however often the notification is delivered."""
    with connection.transaction():
        (first,) = connection.execute("SELECT outbox_first('invoices'::text, %s::text)", (id,)).fetchone()
        if first:
            connection.execute("INSERT INTO invoices (order_id) VALUES (%s)", (order,))
    return "first" if first else "seen before"


with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
    print({"place": place, "handle": handle}[sys.argv[1]](connection, *sys.argv[2:]))
