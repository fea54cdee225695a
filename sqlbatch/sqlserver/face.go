package sqlserver

import (
	"strings"

	"github.com/chanq/chanq/sqlbatch"
)

// The view and the procedure that other programs can use in addition to the tables: see docs/guides/sql.md.

// keepOptions is a separate batch before each view and procedure, which permanently keep the two options of their
// creation. CREATE must begin a batch.
const keepOptions = `SET ANSI_NULLS, QUOTED_IDENTIFIER ON;
`

// viewText shows the first messages of each priority, or of each slot, and the last dead messages. Each part is in the
// order of an index, so that it has a bound and needs no sort. READPAST with READCOMMITTEDLOCK: it never blocks, at any
// isolation level of the session, and holds a lock only on the current row. Bodies are cut: a long one would be read,
// under that lock, from separate pages. A body or headers that begin like UTF-16 are shown as UTF-16, all others in the
// code page of the database, which is right for ASCII, and for all of UTF-8 with a UTF-8 collation.
const viewText = `CREATE OR ALTER VIEW {messages} AS
SELECT m.state, CONVERT(char(32), m.id, 2) AS id, m.priority, m.due_at, m.lease_until, m.enqueued_at, m.expires_at, m.ended_at, m.attempts,
       CONVERT(varchar(200), m.dedup_key) AS dedup_key, CONVERT(varchar(100), m.type) AS type,{view order}
       CASE WHEN SUBSTRING(m.headers, 2, 1) = 0x00 OR SUBSTRING(m.headers, 1, 2) = 0xFFFE THEN CONVERT(nvarchar(4000), m.headers) ELSE CONVERT(varchar(4000), m.headers) END AS headers,
       CASE WHEN SUBSTRING(m.body, 2, 1) = 0x00 OR SUBSTRING(m.body, 1, 2) = 0xFFFE THEN CONVERT(nvarchar(4000), m.body) ELSE CONVERT(varchar(4000), m.body) END AS body,
       m.bytes, m.last_error
FROM (
    SELECT CASE WHEN q.lease_until > SYSUTCDATETIME() THEN 'leased' WHEN q.due_at > SYSUTCDATETIME() THEN 'scheduled' ELSE 'ready' END AS state,
           q.id, q.priority, q.due_at, CASE WHEN q.leased_by IS NOT NULL THEN q.lease_until END AS lease_until,
           q.enqueued_at, q.expires_at, CONVERT(datetime2(3), NULL) AS ended_at, q.attempts, q.dedup_key, q.type{q order},
           CONVERT(varbinary(4000), SUBSTRING(q.headers, 1, 4000)) AS headers, CONVERT(varbinary(4000), SUBSTRING(q.body, 1, 4000)) AS body, DATALENGTH(q.body) AS bytes, q.last_error
    FROM {view parts}
    CROSS APPLY (
        SELECT TOP (1000) l.id, l.priority, l.due_at, l.lease_until, l.leased_by, l.enqueued_at, l.expires_at, l.attempts, l.dedup_key, l.type{l order}, l.headers, l.body, l.last_error
        FROM {live} AS l WITH (READPAST, READCOMMITTEDLOCK, INDEX ({due}), FORCESEEK)
        WHERE {view lane}) AS q
    UNION ALL
    SELECT 'dead' AS state, d.id, d.priority, CONVERT(datetime2(3), NULL) AS due_at, CONVERT(datetime2(3), NULL) AS lease_until,
           d.enqueued_at, CONVERT(datetime2(3), NULL) AS expires_at, d.ended_at, d.attempts, d.dedup_key, d.type{d order},
           CONVERT(varbinary(4000), SUBSTRING(d.headers, 1, 4000)) AS headers, CONVERT(varbinary(4000), SUBSTRING(d.body, 1, 4000)) AS body, DATALENGTH(d.body) AS bytes, d.last_error
    FROM (
        SELECT TOP (1000) e.id, e.priority, e.enqueued_at, e.ended_at, e.attempts, e.dedup_key, e.type{e order}, e.headers, e.body, e.last_error
        FROM {dead} AS e WITH (READPAST, READCOMMITTEDLOCK, INDEX ({dead ended}))
        ORDER BY e.ended_at DESC, e.id DESC) AS d
) AS m;
`

// utf8Text converts a key to UTF-8, as in Go. SQL Server before 2019 has no function for this. It reads the byte pairs
// of the UTF-16, low byte first.
const utf8Text = `CREATE OR ALTER PROCEDURE {utf8}
    @text nvarchar(201),
    @bytes varbinary(804) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @raw varbinary(402) = CONVERT(varbinary(402), @text);
    DECLARE @i int = 1;
    DECLARE @c int;
    DECLARE @d int;
    SET @bytes = 0x;
    WHILE @i < DATALENGTH(@raw)
    BEGIN
        SET @c = CONVERT(int, SUBSTRING(@raw, @i, 1)) + 256 * CONVERT(int, SUBSTRING(@raw, @i + 1, 1));
        SET @i = @i + 2;
        IF @c >= 55296 AND @c < 56320 AND @i < DATALENGTH(@raw)
        BEGIN
            SET @d = CONVERT(int, SUBSTRING(@raw, @i, 1)) + 256 * CONVERT(int, SUBSTRING(@raw, @i + 1, 1));
            IF @d >= 56320 AND @d < 57344
            BEGIN
                SET @c = 65536 + (@c - 55296) * 1024 + @d - 56320;
                SET @i = @i + 2;
            END;
        END;
        IF @c < 128
            SET @bytes = @bytes + CONVERT(binary(1), @c);
        ELSE IF @c < 2048
            SET @bytes = @bytes + CONVERT(binary(1), 192 + @c / 64) + CONVERT(binary(1), 128 + @c % 64);
        ELSE IF @c >= 55296 AND @c < 57344
            THROW 51875, N'chanq: a key has half of a surrogate pair', 1;
        ELSE IF @c < 65536
            SET @bytes = @bytes + CONVERT(binary(1), 224 + @c / 4096) + CONVERT(binary(1), 128 + @c / 64 % 64) + CONVERT(binary(1), 128 + @c % 64);
        ELSE
            SET @bytes = @bytes + CONVERT(binary(1), 240 + @c / 262144) + CONVERT(binary(1), 128 + @c / 4096 % 64) + CONVERT(binary(1), 128 + @c / 64 % 64) + CONVERT(binary(1), 128 + @c % 64);
    END;
END;
`

// A table with a filtered index accepts a row only from a session with seven settings. A procedure keeps two of them
// from its creation, and sets the others until it ends.
const (
	sendOptions = `    SET NOCOUNT ON;
    SET ANSI_PADDING, ANSI_WARNINGS, ARITHABORT, CONCAT_NULL_YIELDS_NULL ON;
    SET NUMERIC_ROUNDABORT OFF;
    SET ROWCOUNT 0;
`
	sendKey = `    DECLARE @now datetime2(3) = SYSUTCDATETIME();
    DECLARE @dedup varbinary(804);
    IF DATALENGTH(@dedup_key) > 0
        EXEC {utf8} @dedup_key, @dedup OUTPUT;
    IF @id IS NULL
        SET @id = {new id};
    IF @body IS NULL
        SET @body = CONVERT(varbinary(max), @text);
`
	sendExpiry = `DATEADD(millisecond, CONVERT(int, @ttl_ms % 86400000), DATEADD(day, CONVERT(int, @ttl_ms / 86400000), @now))`

	sendText = `CREATE OR ALTER PROCEDURE {send}
    @text nvarchar(max) = NULL,
    @dedup_key nvarchar(201) = NULL,
    @headers nvarchar(max) = NULL,
    @priority smallint = 0,
    @delay_ms bigint = 0,
    @body varbinary(max) = NULL,
    @id binary(16) = NULL OUTPUT,
    @ttl_ms bigint = NULL,
    @type varchar(101) = NULL
AS
BEGIN
` + sendOptions + sendKey + `    SET @delay_ms = ISNULL(@delay_ms, 0);
    INSERT INTO {live} WITH (ROWLOCK) (id, priority, due_at, enqueued_at, expires_at, dedup_key, [type], headers, body)
    VALUES (@id, ISNULL(@priority, 0), DATEADD(millisecond, CONVERT(int, @delay_ms % 86400000), DATEADD(day, CONVERT(int, @delay_ms / 86400000), @now)), @now,
        ` + sendExpiry + `, @dedup, CASE WHEN DATALENGTH(@type) > 0 THEN CONVERT(varbinary(101), @type) END, CONVERT(varbinary(max), @headers), @body);
END;
`

	// sendOrderedText computes the slot as SlotOf does, from the stored number of slots, since the program that prints this
	// might not know it. It takes the application lock as enqueueGate does. An error also rolls back the caller's
	// transaction, since the transaction would otherwise keep the lock.
	sendOrderedText = `CREATE OR ALTER PROCEDURE {send}
    @text nvarchar(max) = NULL,
    @key nvarchar(201) = NULL,
    @dedup_key nvarchar(201) = NULL,
    @headers nvarchar(max) = NULL,
    @body varbinary(max) = NULL,
    @id binary(16) = NULL OUTPUT,
    @ttl_ms bigint = NULL,
    @type varchar(101) = NULL
AS
BEGIN
    SET XACT_ABORT ON;
` + sendOptions + sendKey + `    DECLARE @line varbinary(804);
    IF DATALENGTH(@key) > 0
        EXEC {utf8} @key, @line OUTPUT;
    DECLARE @of varbinary(804) = ISNULL(@line, @id);
    DECLARE @hash bigint = CONVERT(bigint, 2166136261);
    DECLARE @i int = 1;
    WHILE @i <= DATALENGTH(@of)
    BEGIN
        SET @hash = (@hash ^ CONVERT(bigint, SUBSTRING(@of, @i, 1))) * 16777619 % CONVERT(bigint, 4294967296);
        SET @i = @i + 1;
    END;
    DECLARE @slots smallint = (SELECT s.slots FROM {queues} AS s WITH (READCOMMITTEDLOCK) WHERE s.name = {name});
    DECLARE @gate nvarchar(255) = {gate};
    DECLARE @granted int;
    DECLARE @number bigint;
    BEGIN TRANSACTION;
    EXEC @granted = sys.sp_getapplock @Resource = @gate, @LockMode = N'Shared', @LockOwner = N'Transaction', @LockTimeout = 10000;
    IF @granted < 0
    BEGIN
        THROW 51874, N'chanq: the application lock of senders was not granted within ten seconds', 1;
    END;
    SET @number = NEXT VALUE FOR {numbers};
    INSERT INTO {live} WITH (ROWLOCK) (id, slot, seq, fence, due_at, enqueued_at, expires_at, order_key, dedup_key, [type], headers, body)
    VALUES (@id, CONVERT(smallint, @hash % @slots), @number * 1048576, @number * 1048576, @now, @now,
        ` + sendExpiry + `, @line, @dedup, CASE WHEN DATALENGTH(@type) > 0 THEN CONVERT(varbinary(101), @type) END, CONVERT(varbinary(max), @headers), @body);
    EXEC @granted = sys.sp_releaseapplock @Resource = @gate, @LockOwner = N'Transaction';
    COMMIT TRANSACTION;
END;
`
)

func (dialect) View(n sqlbatch.Names) []string {
	r := newRenderer(n)
	text := strings.NewReplacer(
		"{view parts}", "(VALUES (2), (1), (0), (-1)) AS p (priority)",
		"{view lane}", "l.priority = p.priority ORDER BY l.due_at, l.id", "{view order}", "",
	)
	if r.ordered {
		text = strings.NewReplacer(
			"{view parts}", "(SELECT s.slot FROM {slots} AS s WITH (READPAST, READCOMMITTEDLOCK) WHERE s.queue = {name}) AS p",
			"{view lane}", "l.slot = p.slot ORDER BY l.seq",
			"{view order}", "\n       m.slot, m.seq, CONVERT(varchar(200), m.order_key) AS order_key,", "TOP (1000) l.", "TOP (100) l.",
		)
	}
	return []string{keepOptions, r.Replace(text.Replace(viewText))}
}

func (dialect) Procedures(n sqlbatch.Names) []string {
	r := newRenderer(n)
	send := sendText
	if r.ordered {
		send = sendOrderedText
	}
	return []string{keepOptions, r.Replace(utf8Text), r.Replace(send)}
}
