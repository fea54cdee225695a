# Sends CHANQ_COUNT messages by INSERT and as many by the procedure, with parameters, as an application with pymssql does:
# the first half one by one, the second half in one transaction.
import json
import os

import pymssql

env = os.environ
count = int(env["CHANQ_COUNT"])
connection = pymssql.connect(
    server=env["CHANQ_HOST"], port=env["CHANQ_PORT"], user=env["CHANQ_USER"],
    password=env["CHANQ_PASSWORD"], database=env["CHANQ_DATABASE"])


def body(n, by):
    return json.dumps({"n": n, "name": f"Łódź by {by}"}, ensure_ascii=False)


def insert(cursor, n):
    cursor.execute("INSERT INTO dbo.chanq_orders (body) VALUES (CONVERT(varbinary(max), %s))", (body(n, "insert"),))


def call(cursor, n):
    cursor.callproc("dbo.chanq_orders__send", (body(n, "procedure"),))


for send in insert, call:
    for n in range(count):
        send(connection.cursor(), n)
        if n < count // 2:
            connection.commit()
    connection.commit()
connection.close()
