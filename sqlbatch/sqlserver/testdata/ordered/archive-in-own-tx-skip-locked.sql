-- @a varbinary(8000)
SET LOCK_TIMEOUT 100;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
DELETE q
OUTPUT deleted.id, deleted.priority, deleted.fence, CASE WHEN deleted.leased_by IS NULL AND deleted.attempts < 2000000000 THEN deleted.attempts + 1 ELSE deleted.attempts END, deleted.enqueued_at, @now, 1,
       deleted.dedup_key, deleted.type, deleted.headers, deleted.body, deleted.last_error, deleted.history, deleted.slot, deleted.seq, deleted.order_key
INTO [dbo].[chanq_orders__done] (id, priority, fence, attempts, enqueued_at, ended_at, outcome, dedup_key, [type], headers, body, last_error, history, slot, seq, order_key)
OUTPUT deleted.id, deleted.fence
FROM (
    SELECT CONVERT(binary(16), SUBSTRING(@a, 24 * (x.i + y.i) + 1, 16)) AS id,
           CONVERT(bigint, SUBSTRING(@a, 24 * (x.i + y.i) + 17, 8)) AS fence
    FROM (VALUES (0), (20), (40), (60), (80), (100), (120), (140), (160), (180),
                 (200), (220), (240), (260), (280), (300), (320), (340), (360), (380)) AS x (i)
    CROSS JOIN (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11),
                       (12), (13), (14), (15), (16), (17), (18), (19)) AS y (i)
    WHERE x.i + y.i < DATALENGTH(@a) / 24
) AS a
INNER JOIN [dbo].[chanq_orders] AS q WITH (XLOCK, READPAST, ROWLOCK, INDEX ([PK_chanq_orders]), FORCESEEK) ON q.id = a.id AND q.fence = a.fence
INNER JOIN [dbo].[chanq_orders] AS e WITH (XLOCK, READPAST, ROWLOCK, INDEX ([IX_chanq_orders__due]), FORCESEEK) ON e.slot = q.slot AND e.seq = q.seq AND e.id = q.id
INNER JOIN [dbo].[chanq_orders] AS f WITH (XLOCK, READPAST, ROWLOCK, INDEX ([IX_chanq_orders__seq]), FORCESEEK) ON f.seq = q.seq AND f.slot = q.slot AND f.id = q.id
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
