# Runs batches by pymssql: each comes on the standard input and ends with a line GO, and is answered by a
# line ok. CHANQ_HOST, CHANQ_PORT, CHANQ_USER, CHANQ_PASSWORD and CHANQ_DATABASE say where.
import os
import sys

import pymssql

connection = pymssql.connect(
    server=os.environ["CHANQ_HOST"], port=os.environ["CHANQ_PORT"], user=os.environ["CHANQ_USER"],
    password=os.environ["CHANQ_PASSWORD"], database=os.environ["CHANQ_DATABASE"], autocommit=True)
lines = []
for line in sys.stdin.buffer:
    if line != b"GO\n":
        lines.append(line.decode())
        continue
    cursor = connection.cursor()
    cursor.execute("".join(lines))
    while cursor.description:  # an error may come after rows
        cursor.fetchall()
        if not cursor.nextset():
            break
    lines = []
    print("ok", flush=True)
connection.close()
