-- @n int, @lease_days int, @lease_ms int, @by binary(16), @salt bigint, @lapses int, @list varbinary(max), @mine int
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET DEADLOCK_PRIORITY LOW;
SET LOCK_TIMEOUT 50;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @mark bigint = DATEDIFF_BIG(millisecond, '19700101', @now) * 1048576;
DECLARE @until datetime2(3) = DATEADD(millisecond, @lease_ms, DATEADD(day, @lease_days, @now));
DECLARE @gone datetime2(3) = (SELECT m.until FROM [dbo].[chanq_members] AS m WHERE m.id = @by);
IF @gone < @until
    SET @until = @gone;
DECLARE @parts TABLE (o int NOT NULL PRIMARY KEY CLUSTERED, slot smallint NOT NULL, after bigint NOT NULL, most int NOT NULL, doubt int NOT NULL);
DECLARE @free TABLE (id binary(16) NOT NULL PRIMARY KEY CLUSTERED);
DECLARE @walked TABLE (o int NOT NULL, slot smallint NOT NULL, seq bigint NOT NULL, id binary(16) NOT NULL, fence bigint NOT NULL,
    due_at datetime2(3) NOT NULL, lease_until datetime2(3) NOT NULL, order_key varbinary(200) NULL, PRIMARY KEY CLUSTERED (o, seq, id));
DECLARE @ends TABLE (o int NOT NULL PRIMARY KEY CLUSTERED, slot smallint NOT NULL, after bigint NOT NULL, seq bigint NOT NULL);
DECLARE @shut TABLE (o int NOT NULL PRIMARY KEY CLUSTERED);
DECLARE @count int;
DECLARE @full int;
DECLARE @o int;
BEGIN TRANSACTION;
INSERT INTO @parts (o, slot, after, most, doubt)
SELECT a.o, a.slot, a.after, CASE WHEN a.most < @n THEN a.most ELSE @n END, a.doubt
FROM (
    SELECT x.i + y.i + 1 AS o,
           CONVERT(smallint, SUBSTRING(@list, 23 * (x.i + y.i) + 1, 2)) AS slot,
           CONVERT(bigint, SUBSTRING(@list, 23 * (x.i + y.i) + 3, 8)) AS fence,
           CONVERT(bigint, SUBSTRING(@list, 23 * (x.i + y.i) + 11, 8)) AS after,
           CONVERT(int, SUBSTRING(@list, 23 * (x.i + y.i) + 19, 4)) AS most,
           CONVERT(int, SUBSTRING(@list, 23 * (x.i + y.i) + 23, 1)) AS doubt
    FROM (VALUES (0), (32), (64), (96), (128), (160), (192), (224), (256), (288), (320), (352), (384), (416), (448), (480),
                 (512), (544), (576), (608), (640), (672), (704), (736), (768), (800), (832), (864), (896), (928), (960), (992)) AS x (i)
    CROSS JOIN (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11), (12), (13), (14), (15),
                       (16), (17), (18), (19), (20), (21), (22), (23), (24), (25), (26), (27), (28), (29), (30), (31)) AS y (i)
    WHERE x.i + y.i < DATALENGTH(@list) / 23
) AS a
INNER JOIN [dbo].[chanq_slots] AS s WITH (UPDLOCK, READPAST, ROWLOCK, INDEX ([PK_chanq_slots]), FORCESEEK) ON s.queue = 'orders' AND s.slot = a.slot
WHERE s.fence = a.fence AND s.member = @by AND @gone > @now AND NOT EXISTS (
    SELECT 1 FROM [dbo].[chanq_queues] AS p WITH (READPAST, READCOMMITTEDLOCK) WHERE p.name = 'orders' AND p.paused = 1)
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
INSERT INTO @free (id)
SELECT TOP (@n) f.id
FROM @parts AS p
CROSS APPLY (
    SELECT TOP (p.most) u.id
    FROM (
        SELECT TOP (p.most) q.id, q.seq, q.due_at, q.lease_until, q.leased_by, q.lapses
        FROM [dbo].[chanq_orders] AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders_due]), FORCESEEK)
        WHERE q.slot = p.slot AND q.seq > p.after AND (@mine = 1 OR q.leased_by IS NULL OR q.leased_by <> @by OR q.lease_until <= @now)
        ORDER BY q.seq) AS i
    INNER JOIN [dbo].[chanq_orders] AS u WITH (UPDLOCK, READPAST, ROWLOCK, INDEX ([PK_chanq_orders]), FORCESEEK) ON u.id = i.id
    WHERE i.due_at <= @now AND i.lease_until <= @now
      AND CASE WHEN i.leased_by IS NULL THEN i.lapses ELSE i.lapses + 1 END < @lapses
      AND u.due_at <= @now AND u.lease_until <= @now
    ORDER BY i.seq) AS f
ORDER BY p.o
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
INSERT INTO @walked (o, slot, seq, id, fence, due_at, lease_until, order_key)
SELECT TOP (@n) p.o, p.slot, w.seq, w.id, w.fence, w.due_at, w.lease_until, w.order_key
FROM @parts AS p
CROSS APPLY (
    SELECT TOP (p.most) q.seq, q.id, q.fence, q.due_at, q.lease_until, q.order_key
    FROM [dbo].[chanq_orders] AS q WITH (READUNCOMMITTED, INDEX ([IX_chanq_orders_due]), FORCESEEK)
    WHERE q.slot = p.slot AND q.seq > p.after AND (@mine = 1 OR q.leased_by IS NULL OR q.leased_by <> @by OR q.lease_until <= @now)
    ORDER BY q.seq) AS w
ORDER BY p.o, w.seq
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
SET @count = (SELECT COUNT(*) FROM @walked AS w);
IF @count >= @n
    SET @full = CASE WHEN @n > 0 THEN (SELECT MAX(w.o) FROM @walked AS w) ELSE 0 END;
INSERT INTO @ends (o, slot, after, seq)
SELECT p.o, p.slot, p.after,
       CASE WHEN p.o > @full OR p.most <= 0 THEN p.after
            WHEN p.o = @full OR c.n >= p.most THEN c.seq
            ELSE CONVERT(bigint, 0x7FFFFFFFFFFFFFFF) END
FROM @parts AS p
CROSS APPLY (SELECT COUNT(*) AS n, MAX(w.seq) AS seq FROM @walked AS w WHERE w.o = p.o) AS c;
SET XACT_ABORT OFF;
SET @o = (SELECT MIN(p.o) FROM @parts AS p WHERE p.doubt = 1);
WHILE @o IS NOT NULL
BEGIN
    BEGIN TRY
        IF EXISTS (
            SELECT 1
            FROM (
                SELECT e.slot, b.after, CASE WHEN n.seq IS NULL THEN e.seq ELSE n.seq - 1 END AS last
                FROM (
                    SELECT s.after FROM @ends AS s WHERE s.o = @o
                    UNION ALL
                    SELECT w.seq FROM @walked AS w WHERE w.o = @o) AS b
                INNER JOIN @ends AS e ON e.o = @o
                CROSS APPLY (SELECT MIN(w.seq) AS seq FROM @walked AS w WHERE w.o = @o AND w.seq > b.after) AS n) AS g
            INNER JOIN [dbo].[chanq_orders] AS q WITH (READCOMMITTEDLOCK, INDEX ([IX_chanq_orders_due]), FORCESEEK) ON q.slot = g.slot AND q.seq > g.after AND q.seq <= g.last
            WHERE q.fence > 0 AND (@mine = 1 OR q.leased_by IS NULL OR q.leased_by <> @by OR q.lease_until <= @now))
            INSERT INTO @shut (o) VALUES (@o);
    END TRY
    BEGIN CATCH
        IF ERROR_NUMBER() <> 1222
        BEGIN
            SET XACT_ABORT ON;
            THROW;
        END;
        SET LOCK_TIMEOUT 5;
        INSERT INTO @shut (o) VALUES (@o);
    END CATCH;
    SET @o = (SELECT MIN(p.o) FROM @parts AS p WHERE p.doubt = 1 AND p.o > @o);
END;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 50;
UPDATE q
SET lease_until = @until,
        fence = CASE WHEN q.fence > @mark AND q.fence <= CONVERT(bigint, 0x7ce66b50e2840000) THEN q.fence ELSE @mark END + @salt,
        attempts = CASE WHEN q.attempts < 2000000000 THEN q.attempts + 1 ELSE q.attempts END,
        lapses = CASE WHEN q.leased_by IS NOT NULL AND q.lapses < 32767 THEN q.lapses + 1 ELSE q.lapses END,
        leased_by = @by
OUTPUT inserted.id, inserted.priority, inserted.fence, inserted.attempts, inserted.lapses,
           CASE WHEN inserted.expires_at <= @now THEN 1 ELSE 0 END AS expired,
           DATEDIFF_BIG(millisecond, '19700101', inserted.enqueued_at) AS enqueued_at,
           DATEDIFF_BIG(millisecond, '19700101', inserted.due_at) AS due_at,
           DATEDIFF_BIG(millisecond, '19700101', inserted.expires_at) AS expires_at,
           inserted.dedup_key, inserted.headers, inserted.body, inserted.slot, inserted.seq, inserted.order_key, CONVERT(bigint, NULL) AS wait
FROM @walked AS w
INNER JOIN @free AS f ON f.id = w.id
INNER JOIN [dbo].[chanq_orders] AS q WITH (UPDLOCK, ROWLOCK, INDEX ([PK_chanq_orders]), FORCESEEK) ON q.id = w.id
WHERE NOT EXISTS (SELECT 1 FROM @shut AS h WHERE h.o = w.o)
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
SELECT w.id, 0 AS priority, CONVERT(bigint, 0) AS fence, 0 AS attempts, 0 AS lapses, 0 AS expired, CONVERT(bigint, 0) AS enqueued_at,
       DATEDIFF_BIG(millisecond, '19700101', w.due_at) AS due_at, CONVERT(bigint, NULL) AS expires_at, CONVERT(varbinary(200), NULL) AS dedup_key, CONVERT(varbinary(1), NULL) AS headers, CONVERT(varbinary(1), NULL) AS body, w.slot, w.seq, w.order_key,
       CASE WHEN w.due_at > @now AND w.due_at >= w.lease_until THEN DATEDIFF_BIG(millisecond, @now, w.due_at)
            WHEN w.lease_until > @now THEN DATEDIFF_BIG(millisecond, @now, w.lease_until) ELSE CONVERT(bigint, 0) END AS wait
FROM @walked AS w
WHERE NOT EXISTS (SELECT 1 FROM @free AS f WHERE f.id = w.id);
SELECT CONVERT(binary(16), NULL) AS id, 0 AS priority, CONVERT(bigint, 0) AS fence, 0 AS attempts, 0 AS lapses, 0 AS expired, CONVERT(bigint, 0) AS enqueued_at,
       CONVERT(bigint, 0) AS due_at, CONVERT(bigint, NULL) AS expires_at, CONVERT(varbinary(200), NULL) AS dedup_key, CONVERT(varbinary(1), NULL) AS headers, CONVERT(varbinary(1), NULL) AS body, e.slot,
       CASE WHEN EXISTS (SELECT 1 FROM @shut AS h WHERE h.o = e.o) THEN e.after ELSE e.seq END AS seq, CONVERT(varbinary(200), NULL) AS order_key, CONVERT(bigint, NULL) AS wait
FROM @ends AS e;
COMMIT TRANSACTION;
