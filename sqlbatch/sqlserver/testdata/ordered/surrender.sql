-- @ids varbinary(8000), @by binary(16)
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @mark bigint = DATEDIFF_BIG(millisecond, '19700101', @now) * 1048576;
UPDATE q
SET lease_until = @now
OUTPUT deleted.id
FROM (
    SELECT CONVERT(binary(16), SUBSTRING(@ids, 16 * (x.i + y.i) + 1, 16)) AS id
    FROM (VALUES (0), (20), (40), (60), (80), (100), (120), (140), (160), (180),
                 (200), (220), (240), (260), (280), (300), (320), (340), (360), (380)) AS x (i)
    CROSS JOIN (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11),
                       (12), (13), (14), (15), (16), (17), (18), (19)) AS y (i)
    WHERE x.i + y.i < DATALENGTH(@ids) / 16
) AS a
INNER JOIN [dbo].[chanq_orders] AS q WITH (ROWLOCK, INDEX ([PK_chanq_orders]), FORCESEEK) ON q.id = a.id AND q.leased_by = @by AND q.lease_until > @now
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
