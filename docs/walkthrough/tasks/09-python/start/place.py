"""python place.py o-1 kite"""
import os
import sys

import psycopg

order, product = sys.argv[1:]
with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
    connection.execute("INSERT INTO orders (id, product) VALUES (%s, %s)", (order, product))
