-- @a varbinary(8000), @d varbinary(8000), @by binary(16), @lapsed int
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
SET LOCK_TIMEOUT 100;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
UPDATE q
SET fence = CASE WHEN q.fence > CONVERT(bigint, 0x7ce66b50e2840000) OR q.fence < a.delivery THEN a.delivery ELSE q.fence END + 1,
    attempts = CASE WHEN @lapsed = 1 AND q.leased_by IS NULL AND q.attempts < 2000000000 THEN q.attempts + 1
                    WHEN @lapsed = 0 AND q.leased_by = @by THEN q.attempts - 1 ELSE q.attempts END,
    lapses = CASE WHEN @lapsed = 1 AND q.lapses < 32767 THEN q.lapses + 1 ELSE q.lapses END,
    lease_until = CASE WHEN @lapsed = 0 AND q.leased_by IS NOT NULL AND q.leased_by <> @by THEN q.lease_until ELSE '19700101' END,
    leased_by = CASE WHEN @lapsed = 0 AND q.leased_by IS NOT NULL AND q.leased_by <> @by THEN q.leased_by END,
    history = CASE WHEN @lapsed = 1 THEN CONVERT(nvarchar(2000), CONCAT(DATEDIFF_BIG(millisecond, '19700101', @now), N' ', 0, N' ', SUBSTRING(h.name, 1, 60), CONVERT(nvarchar(1), 0x0A00),
        N'the lease expired', CONVERT(nvarchar(1), 0x1E00), q.history)) ELSE q.history END
OUTPUT inserted.id, inserted.fence, CASE WHEN inserted.leased_by IS NOT NULL AND inserted.lapses < 32767 THEN inserted.lapses + 1 ELSE inserted.lapses END AS lapses
FROM (
    SELECT CONVERT(binary(16), SUBSTRING(@a, 24 * (x.i + y.i) + 1, 16)) AS id,
           CONVERT(bigint, SUBSTRING(@a, 24 * (x.i + y.i) + 17, 8)) AS fence,
           CONVERT(bigint, SUBSTRING(@d, 8 * (x.i + y.i) + 1, 8)) AS delivery
    FROM (VALUES (0), (20), (40), (60), (80), (100), (120), (140), (160), (180),
                 (200), (220), (240), (260), (280), (300), (320), (340), (360), (380)) AS x (i)
    CROSS JOIN (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11),
                       (12), (13), (14), (15), (16), (17), (18), (19)) AS y (i)
    WHERE x.i + y.i < DATALENGTH(@a) / 24
) AS a
INNER JOIN [dbo].[chanq_orders] AS q WITH (XLOCK, READPAST, ROWLOCK, INDEX ([PK_chanq_orders]), FORCESEEK) ON q.id = a.id AND q.fence = a.fence
CROSS APPLY (SELECT MIN(m.name) AS name FROM [dbo].[chanq__consumers] AS m WITH (READUNCOMMITTED) WHERE m.id = @by) AS h
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
