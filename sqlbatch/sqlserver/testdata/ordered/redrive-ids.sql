-- @ids varbinary(8000)
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @chosen TABLE (id binary(16) NOT NULL PRIMARY KEY CLUSTERED);
BEGIN TRANSACTION;
INSERT INTO @chosen (id)
SELECT d.id
FROM (
    SELECT CONVERT(binary(16), SUBSTRING(@ids, 16 * (x.i + y.i) + 1, 16)) AS id
    FROM (VALUES (0), (20), (40), (60), (80), (100), (120), (140), (160), (180),
                 (200), (220), (240), (260), (280), (300), (320), (340), (360), (380)) AS x (i)
    CROSS JOIN (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11),
                       (12), (13), (14), (15), (16), (17), (18), (19)) AS y (i)
    WHERE x.i + y.i < DATALENGTH(@ids) / 16
) AS a
INNER JOIN [dbo].[chanq_orders__dead] AS d WITH (UPDLOCK, ROWLOCK, INDEX ([PK_chanq_orders__dead]), FORCESEEK) ON d.id = a.id
WHERE NOT EXISTS (
    SELECT 1
    FROM [dbo].[chanq_orders] AS q WITH (INDEX ([PK_chanq_orders]), FORCESEEK)
    WHERE q.id = d.id)
  AND NOT EXISTS (
    SELECT 1
    FROM [dbo].[chanq_orders] AS q WITH (INDEX ([UX_chanq_orders__dedup]), FORCESEEK)
    WHERE q.dedup_key = d.dedup_key AND q.dedup_key IS NOT NULL)
  AND (d.dedup_key IS NULL OR NOT EXISTS (
    SELECT 1
    FROM (
    SELECT CONVERT(binary(16), SUBSTRING(@ids, 16 * (x.i + y.i) + 1, 16)) AS id
    FROM (VALUES (0), (20), (40), (60), (80), (100), (120), (140), (160), (180),
                 (200), (220), (240), (260), (280), (300), (320), (340), (360), (380)) AS x (i)
    CROSS JOIN (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11),
                       (12), (13), (14), (15), (16), (17), (18), (19)) AS y (i)
    WHERE x.i + y.i < DATALENGTH(@ids) / 16
) AS a
INNER JOIN [dbo].[chanq_orders__dead] AS e WITH (INDEX ([PK_chanq_orders__dead]), FORCESEEK) ON e.id = a.id
    WHERE e.dedup_key = d.dedup_key AND e.id < d.id))
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
INSERT INTO [dbo].[chanq_orders] WITH (ROWLOCK) (id, priority, due_at, enqueued_at, fence, dedup_key, [type], headers, body, last_error, history, slot, seq, order_key)
SELECT d.id, d.priority, @now, d.enqueued_at, d.fence + 1, d.dedup_key, d.type, d.headers, d.body, d.last_error, d.history, d.slot, d.seq, d.order_key
FROM @chosen AS a
INNER JOIN [dbo].[chanq_orders__dead] AS d WITH (UPDLOCK, ROWLOCK, INDEX ([PK_chanq_orders__dead]), FORCESEEK) ON d.id = a.id
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
DELETE d
OUTPUT deleted.id, DATEDIFF_BIG(millisecond, '19700101', deleted.ended_at) AS place
FROM @chosen AS a
INNER JOIN [dbo].[chanq_orders__dead] AS d WITH (UPDLOCK, ROWLOCK, INDEX ([PK_chanq_orders__dead]), FORCESEEK) ON d.id = a.id
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
IF EXISTS (SELECT 1 FROM @chosen AS c)
    UPDATE s
    SET redriven = CONVERT(bigint, SUBSTRING(CONVERT(binary(16), NEWID()), 9, 7))
    FROM [dbo].[chanq__queues] AS s WITH (ROWLOCK)
    WHERE s.name = 'orders';
COMMIT TRANSACTION;
