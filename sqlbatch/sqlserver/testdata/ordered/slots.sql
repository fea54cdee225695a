-- @list varbinary(max)
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @members bigint = (SELECT COUNT_BIG(*) FROM [dbo].[chanq_members] AS m WHERE m.queue = 'orders' AND m.until > @now);
DECLARE @parts TABLE (o int NOT NULL PRIMARY KEY CLUSTERED, slot smallint NOT NULL, after bigint NOT NULL, most int NOT NULL, doubt int NOT NULL);
INSERT INTO @parts (o, slot, after, most, doubt)
SELECT a.o, a.slot, a.after, a.most, a.doubt
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
WHERE NOT EXISTS (SELECT 1 FROM [dbo].[chanq_queues] AS s WITH (READPAST, READCOMMITTEDLOCK) WHERE s.name = 'orders' AND s.paused = 1);
SELECT s.slot, s.member AS owner,
       CASE WHEN s.member IS NULL THEN NULL WHEN g.until IS NULL THEN CONVERT(bigint, 0) ELSE DATEDIFF_BIG(millisecond, @now, g.until) END AS left_ms,
       s.fence, @members AS members, DATEDIFF_BIG(millisecond, @now, d.due_at) AS due_in
FROM [dbo].[chanq_slots] AS s
CROSS APPLY (SELECT MIN(m.until) AS until FROM [dbo].[chanq_members] AS m WHERE m.id = s.member) AS g
CROSS APPLY (
    SELECT MIN(f.due_at) AS due_at
    FROM @parts AS p
    CROSS APPLY (
        SELECT TOP (p.most) q.due_at
        FROM [dbo].[chanq_orders] AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders_due]), FORCESEEK)
        WHERE q.slot = p.slot AND q.seq > p.after AND q.lease_until <= @now
        ORDER BY q.seq) AS f
    WHERE p.slot = s.slot) AS d
WHERE s.queue = 'orders'
ORDER BY s.slot
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
