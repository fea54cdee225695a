-- @a varbinary(8000), @e varbinary(max), @d varbinary(8000)
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
SET LOCK_TIMEOUT 100;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
UPDATE q
SET due_at = DATEADD(millisecond, a.delay_ms, DATEADD(day, a.delay_days, @now)),
    lease_until = '19700101',
    fence = CASE WHEN q.fence > CONVERT(bigint, 0x7ce66b50e2840000) OR q.fence < a.delivery THEN a.delivery ELSE q.fence END + 1,
    attempts = CASE WHEN q.leased_by IS NULL AND q.attempts < 2000000000 THEN q.attempts + 1 ELSE q.attempts END - q.lapses,
    lapses = 0,
    leased_by = NULL,
    last_error = CASE WHEN a.bytes = 0 THEN q.last_error
                      ELSE CONVERT(nvarchar(2000), SUBSTRING(@e, a.place + 1, a.bytes)) END,
    history = CONVERT(nvarchar(2000), CONCAT(DATEDIFF_BIG(millisecond, '19700101', @now), N' ', a.took, N' ', SUBSTRING(h.name, 1, 60), CONVERT(nvarchar(1), 0x0A00),
        CONVERT(nvarchar(300), SUBSTRING(@e, a.place + 1, a.bytes)), CONVERT(nvarchar(1), 0x1E00), q.history))
OUTPUT deleted.id, deleted.fence
FROM (
    SELECT CONVERT(binary(16), SUBSTRING(@a, 42 * (x.i + y.i) + 1, 16)) AS id,
           CONVERT(bigint, SUBSTRING(@a, 42 * (x.i + y.i) + 17, 8)) AS fence,
           CONVERT(int, SUBSTRING(@a, 42 * (x.i + y.i) + 25, 4)) AS delay_days,
           CONVERT(int, SUBSTRING(@a, 42 * (x.i + y.i) + 29, 4)) AS delay_ms,
           CONVERT(int, SUBSTRING(@a, 42 * (x.i + y.i) + 33, 4)) AS place,
           CONVERT(int, SUBSTRING(@a, 42 * (x.i + y.i) + 37, 2)) AS bytes,
           CONVERT(int, SUBSTRING(@a, 42 * (x.i + y.i) + 39, 4)) AS took,
           CONVERT(bigint, SUBSTRING(@d, 8 * (x.i + y.i) + 1, 8)) AS delivery
    FROM (VALUES (0), (20), (40), (60), (80), (100), (120), (140), (160), (180),
                 (200), (220), (240), (260), (280), (300), (320), (340), (360), (380)) AS x (i)
    CROSS JOIN (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11),
                       (12), (13), (14), (15), (16), (17), (18), (19)) AS y (i)
    WHERE x.i + y.i < DATALENGTH(@a) / 42
) AS a
INNER JOIN [dbo].[chanq_orders] AS q WITH (XLOCK, READPAST, ROWLOCK, INDEX ([PK_chanq_orders]), FORCESEEK) ON q.id = a.id AND q.fence = a.fence
CROSS APPLY (SELECT MIN(m.name) AS name FROM [dbo].[chanq__slots] AS s WITH (READUNCOMMITTED)
    INNER JOIN [dbo].[chanq__consumers] AS m WITH (READUNCOMMITTED) ON m.id = CASE WHEN q.leased_by IS NULL THEN s.consumer ELSE q.leased_by END
    WHERE s.queue = 'orders' AND s.slot = q.slot) AS h
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
