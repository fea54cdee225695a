# What pymssql (FreeTDS's DB-Library) does against the emulator. Each check prints
# "ok name" or "not ok name: why", and the end "ok all" with their number; CHANQ_HOST, CHANQ_PORT and CHANQ_PASSWORD say where.
import datetime
import os
import uuid
from decimal import Decimal

import pymssql


def connect(database="test", **options):
    return pymssql.connect(
        server=os.environ["CHANQ_HOST"], port=os.environ["CHANQ_PORT"], user="sa",
        password=os.environ["CHANQ_PASSWORD"], database=database, **options)


def number(action, *args):
    """The number of the error that an action ends with."""
    try:
        action(*args)
    except pymssql.Error as error:
        first = error.args[0]
        return first[0] if isinstance(first, tuple) else first
    return None


def same(got, want):
    assert got == want, f"{got!r}, not {want!r}"


def counts(c):
    q = c.cursor()
    q.execute("CREATE TABLE dbo.py (id int NOT NULL PRIMARY KEY, note nvarchar(50) NULL, body varbinary(max) NULL)")
    q.execute("INSERT dbo.py (id, note) VALUES (%d, %s), (%d, %s)", (1, "å€", 2, None))
    same(q.rowcount, 2)
    q.execute("UPDATE dbo.py SET note = N'b'")
    same(q.rowcount, 2)
    q.execute("SELECT id, note FROM dbo.py ORDER BY id")
    same(q.fetchall(), [(1, "b"), (2, "b")])
    q.execute("DELETE dbo.py WHERE id = 2")
    same(q.rowcount, 1)
    c.commit()


def values(c):
    q = c.cursor()
    at = datetime.datetime(2026, 1, 2, 3, 4, 5, 670000)  # as datetime has it
    q.execute(
        "SELECT 7, CONVERT(bigint, 9007199254740993), N'å😀', 0x0102, CONVERT(decimal(10, 2), '-12.25'), CONVERT(float, 2), NULL,"
        " CONVERT(datetime2(3), '2026-01-02T03:04:05.670'), CONVERT(bit, 1), CONVERT(uniqueidentifier, '6F9619FF-8B86-D011-B42D-00C04FC964FF')")
    same(q.fetchone(), (
        7, 9007199254740993, "å😀", b"\x01\x02", Decimal("-12.25"), 2.0, None,
        at, True, uuid.UUID("6F9619FF-8B86-D011-B42D-00C04FC964FF")))


def long_values(c):
    q = c.cursor()
    body = os.urandom(70000)
    q.execute("UPDATE dbo.py SET body = %s WHERE id = 1", (bytearray(body),))
    q.execute("SELECT body FROM dbo.py WHERE id = 1")
    same(q.fetchone()[0], body)
    c.rollback()


def many(c):
    q = c.cursor()
    q.executemany("INSERT dbo.py (id, note) VALUES (%d, %s)", [(i, f"n{i}") for i in range(10, 60)])
    c.commit()
    q.execute("SELECT COUNT(*) FROM dbo.py WHERE id >= 10")
    same(q.fetchone()[0], 50)


def transactions(c):
    q = c.cursor()
    q.execute("DELETE dbo.py")
    c.rollback()
    q.execute("SELECT COUNT(*) FROM dbo.py")
    same(q.fetchone()[0], 51)
    c.autocommit(True)
    q.execute("SELECT @@TRANCOUNT")
    same(q.fetchone()[0], 0)
    c.autocommit(False)


def procedures(c):
    q = c.cursor()
    q.execute("CREATE PROCEDURE dbo.twice @n int, @text nvarchar(20), @out int OUTPUT AS SET @out = @n * 2")
    q.execute("CREATE PROCEDURE dbo.pair @n int, @text nvarchar(20) AS SELECT @n, @text")
    c.commit()
    same(q.callproc("dbo.twice", (21, "hej", pymssql.output(int)))[2], 42)
    q.callproc("dbo.pair", (21, "hej"))
    q.nextset()
    same(q.fetchall(), [(21, "hej")])


def errors(c):
    q = c.cursor()
    same(number(q.execute, "SELECT id FROM dbo.nowhere"), 208)
    same(number(q.execute, "INSERT dbo.py (id) VALUES (1)"), 2627)
    same(number(q.execute, "SELECT 1 / 0"), 8134)
    same(number(q.execute, "DELETE dbo.py\nGO"), 102)
    same(number(q.execute, "THROW 50123, N'own', 1"), 50123)
    c.rollback()
    q.execute("SELECT 1")
    same(q.fetchone()[0], 1)


def cut(c):
    q = c.cursor()
    q.execute("SET TEXTSIZE 3")
    q.execute("SELECT CONVERT(varbinary(max), 0x0102030405)")
    same(q.fetchone()[0], b"\x01\x02\x03")
    q.execute("SET TEXTSIZE 2147483647; SET ROWCOUNT 2; SET FMTONLY OFF")
    q.execute("SELECT id FROM dbo.py")
    same(len(q.fetchall()), 2)
    q.execute("SET ROWCOUNT 0")


def slow(_):
    late = connect(timeout=1)
    q = late.cursor()
    assert number(q.execute, "WAITFOR DELAY '1:00'"), "no error"
    late.close()


def elsewhere(c):
    q = c.cursor()
    q.execute("USE master")
    q.execute("USE test")
    same(number(q.execute, "USE elsewhere"), 911)
    assert number(connect, "elsewhere") in (4060, 18456, 20002)


connection = connect()
checks = {
    "a batch and its counts": counts, "values of every type": values, "70,000 bytes": long_values, "executemany": many,
    "transactions": transactions, "a procedure and what it returns": procedures, "errors by their numbers": errors,
    "TEXTSIZE, ROWCOUNT, FMTONLY": cut, "a query that takes too long": slow, "another database": elsewhere,
}
for name, check in checks.items():
    try:
        check(connection)
        print("ok " + name)
    except Exception as error:  # whatever it is
        print(f"not ok {name}: {error!r}".replace("\n", " | "))
print(f"ok all {len(checks)}")
