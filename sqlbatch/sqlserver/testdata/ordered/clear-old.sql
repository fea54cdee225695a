-- @by binary(16), @list varbinary(max), @n int
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET LOCK_TIMEOUT 100;
DECLARE @left TABLE (slot smallint NOT NULL, fence bigint NOT NULL, old bigint NOT NULL, PRIMARY KEY CLUSTERED (slot));
DECLARE @walked TABLE (seq bigint NOT NULL, id binary(16) NOT NULL, slot smallint NOT NULL, PRIMARY KEY CLUSTERED (seq, id));
INSERT INTO @left (slot, fence, old)
SELECT s.slot, s.fence, s.old
FROM (
    SELECT CONVERT(smallint, SUBSTRING(@list, 11 * (x.i + y.i) + 1, 2)) AS slot,
           CONVERT(bigint, SUBSTRING(@list, 11 * (x.i + y.i) + 3, 8)) AS fence,
           CONVERT(int, SUBSTRING(@list, 11 * (x.i + y.i) + 11, 1)) AS doubt
    FROM (VALUES (0), (32), (64), (96), (128), (160), (192), (224), (256), (288), (320), (352), (384), (416), (448), (480),
                 (512), (544), (576), (608), (640), (672), (704), (736), (768), (800), (832), (864), (896), (928), (960), (992)) AS x (i)
    CROSS JOIN (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11), (12), (13), (14), (15),
                       (16), (17), (18), (19), (20), (21), (22), (23), (24), (25), (26), (27), (28), (29), (30), (31)) AS y (i)
    WHERE x.i + y.i < DATALENGTH(@list) / 11
) AS a
INNER JOIN [dbo].[chanq_slots] AS s WITH (INDEX ([PK_chanq_slots]), FORCESEEK) ON s.queue = 'orders' AND s.slot = a.slot
WHERE s.fence = a.fence AND s.member = @by AND s.old > 0
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
DECLARE @old bigint = (SELECT MAX(l.old) FROM @left AS l);
INSERT INTO @walked (seq, id, slot)
SELECT TOP (@n) q.seq, q.id, q.slot
FROM [dbo].[chanq_orders] AS q WITH (READCOMMITTEDLOCK, INDEX ([IX_chanq_orders_seq]), FORCESEEK)
WHERE q.seq > 0 AND q.seq <= @old AND EXISTS (SELECT 1 FROM @left AS l WHERE l.slot = q.slot)
ORDER BY q.seq
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
DECLARE @end bigint = CASE WHEN (SELECT COUNT(*) FROM @walked AS w) < @n THEN CONVERT(bigint, 0x7FFFFFFFFFFFFFFF) ELSE (SELECT MAX(w.seq) FROM @walked AS w) END;
UPDATE s
SET old = 0
OUTPUT inserted.slot, inserted.fence
FROM @left AS l
INNER JOIN [dbo].[chanq_slots] AS s WITH (UPDLOCK, ROWLOCK, INDEX ([PK_chanq_slots]), FORCESEEK) ON s.queue = 'orders' AND s.slot = l.slot
WHERE s.fence = l.fence AND l.old <= @end AND NOT EXISTS (SELECT 1 FROM @walked AS w WHERE w.slot = l.slot AND w.seq <= l.old)
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
