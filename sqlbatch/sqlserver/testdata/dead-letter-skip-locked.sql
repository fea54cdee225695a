-- @a varbinary(8000), @e varbinary(max)
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
SET LOCK_TIMEOUT 100;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
BEGIN TRANSACTION;
DELETE d
FROM (
    SELECT CONVERT(binary(16), SUBSTRING(@a, 43 * (x.i + y.i) + 1, 16)) AS id,
           CONVERT(bigint, SUBSTRING(@a, 43 * (x.i + y.i) + 17, 8)) AS fence,
           CONVERT(int, SUBSTRING(@a, 43 * (x.i + y.i) + 25, 4)) AS place,
           CONVERT(int, SUBSTRING(@a, 43 * (x.i + y.i) + 29, 2)) AS bytes,
           CONVERT(bigint, SUBSTRING(@a, 43 * (x.i + y.i) + 32, 8)) AS fingerprint,
           CONVERT(smallint, SUBSTRING(@a, 43 * (x.i + y.i) + 31, 1)) / 2 AS cause,
           CONVERT(int, SUBSTRING(@a, 43 * (x.i + y.i) + 31, 1)) % 2 AS refund,
           CONVERT(int, SUBSTRING(@a, 43 * (x.i + y.i) + 40, 4)) AS took
    FROM (VALUES (0), (20), (40), (60), (80), (100), (120), (140), (160), (180),
                 (200), (220), (240), (260), (280), (300), (320), (340), (360), (380)) AS x (i)
    CROSS JOIN (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11),
                       (12), (13), (14), (15), (16), (17), (18), (19)) AS y (i)
    WHERE x.i + y.i < DATALENGTH(@a) / 43
) AS a
INNER JOIN [dbo].[chanq_orders] AS q WITH (XLOCK, READPAST, ROWLOCK, INDEX ([PK_chanq_orders]), FORCESEEK) ON q.id = a.id AND q.fence = a.fence
INNER JOIN [dbo].[chanq_orders__dead] AS d WITH (ROWLOCK, INDEX ([PK_chanq_orders__dead]), FORCESEEK) ON d.id = q.id
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
DELETE q
OUTPUT deleted.id, deleted.priority, deleted.fence + 1, deleted.attempts - a.refund, deleted.enqueued_at, @now,
       a.cause, CASE WHEN a.fingerprint <> 0 THEN a.fingerprint END,
       deleted.dedup_key, deleted.type, deleted.headers, deleted.body,
       CASE WHEN a.bytes = 0 THEN deleted.last_error
            ELSE CONVERT(nvarchar(2000), SUBSTRING(@e, a.place + 1, a.bytes)) END,
       CASE WHEN a.refund = 1 THEN deleted.history ELSE CONVERT(nvarchar(2000), CONCAT(DATEDIFF_BIG(millisecond, '19700101', @now), N' ', a.took, N' ', SUBSTRING(h.name, 1, 60), CONVERT(nvarchar(1), 0x0A00),
        CONVERT(nvarchar(300), SUBSTRING(@e, a.place + 1, a.bytes)), CONVERT(nvarchar(1), 0x1E00), deleted.history)) END
INTO [dbo].[chanq_orders__dead] (id, priority, fence, attempts, enqueued_at, ended_at, cause, fingerprint, dedup_key, [type], headers, body, last_error, history)
OUTPUT deleted.id, deleted.fence
FROM (
    SELECT CONVERT(binary(16), SUBSTRING(@a, 43 * (x.i + y.i) + 1, 16)) AS id,
           CONVERT(bigint, SUBSTRING(@a, 43 * (x.i + y.i) + 17, 8)) AS fence,
           CONVERT(int, SUBSTRING(@a, 43 * (x.i + y.i) + 25, 4)) AS place,
           CONVERT(int, SUBSTRING(@a, 43 * (x.i + y.i) + 29, 2)) AS bytes,
           CONVERT(bigint, SUBSTRING(@a, 43 * (x.i + y.i) + 32, 8)) AS fingerprint,
           CONVERT(smallint, SUBSTRING(@a, 43 * (x.i + y.i) + 31, 1)) / 2 AS cause,
           CONVERT(int, SUBSTRING(@a, 43 * (x.i + y.i) + 31, 1)) % 2 AS refund,
           CONVERT(int, SUBSTRING(@a, 43 * (x.i + y.i) + 40, 4)) AS took
    FROM (VALUES (0), (20), (40), (60), (80), (100), (120), (140), (160), (180),
                 (200), (220), (240), (260), (280), (300), (320), (340), (360), (380)) AS x (i)
    CROSS JOIN (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11),
                       (12), (13), (14), (15), (16), (17), (18), (19)) AS y (i)
    WHERE x.i + y.i < DATALENGTH(@a) / 43
) AS a
INNER JOIN [dbo].[chanq_orders] AS q WITH (XLOCK, READPAST, ROWLOCK, INDEX ([PK_chanq_orders]), FORCESEEK) ON q.id = a.id AND q.fence = a.fence
INNER JOIN [dbo].[chanq_orders] AS e WITH (XLOCK, READPAST, ROWLOCK, INDEX ([IX_chanq_orders__due]), FORCESEEK) ON e.priority = q.priority AND e.due_at = q.due_at AND e.id = q.id
CROSS APPLY (SELECT MIN(m.name) AS name FROM [dbo].[chanq__consumers] AS m WITH (READUNCOMMITTED) WHERE m.id = q.leased_by) AS h
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
COMMIT TRANSACTION;
