"""python place.py o-1 kite"""
import json
import os
import sys

import psycopg

order, product = sys.argv[1:]
with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
    connection.execute("INSERT INTO orders (id, product) VALUES (%s, %s)", (order, product))
    payload = json.dumps({"order": order, "product": product})
    connection.execute("SELECT outbox_publish('order.placed'::text, %s::text, %s::json)", (order, payload))
