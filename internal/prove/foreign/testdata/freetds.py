# Runs the script of its standard input by pymssql, batch after batch; they end with a line GO.
# CHANQ_HOST, CHANQ_PORT, CHANQ_USER, CHANQ_PASSWORD and CHANQ_DATABASE say where.
import os
import sys

import pymssql

connection = pymssql.connect(
    server=os.environ["CHANQ_HOST"], port=os.environ["CHANQ_PORT"], user=os.environ["CHANQ_USER"],
    password=os.environ["CHANQ_PASSWORD"], database=os.environ["CHANQ_DATABASE"], autocommit=True)
for batch in sys.stdin.buffer.read().decode().split("\nGO\n"):
    if batch.strip():
        cursor = connection.cursor()
        cursor.execute(batch)
        while cursor.description:  # an error may come after rows
            cursor.fetchall()
            if not cursor.nextset():
                break
connection.close()
