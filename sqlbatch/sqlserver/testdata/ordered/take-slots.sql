-- @slots varbinary(8000), @by binary(16), @salt bigint
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
SET LOCK_TIMEOUT 100;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @mark bigint = DATEDIFF_BIG(millisecond, '19700101', @now) * 1048576;
DECLARE @drawn bigint = ((SELECT CONVERT(bigint, n.current_value) FROM sys.sequences AS n WHERE n.object_id = OBJECT_ID(N'[dbo].[chanq_orders__seq]', N'SO')) + 1) * 1048576 - 1;
UPDATE s
SET consumer = @by,
    fence = CASE WHEN s.fence > @mark THEN s.fence ELSE @mark END + @salt,
    old = CASE WHEN s.consumer IS NULL THEN s.old ELSE @drawn END
OUTPUT inserted.slot, inserted.fence, inserted.old
FROM (
    SELECT CONVERT(smallint, SUBSTRING(@slots, 2 * (x.i + y.i) + 1, 2)) AS slot
    FROM (VALUES (0), (32), (64), (96), (128), (160), (192), (224), (256), (288), (320), (352), (384), (416), (448), (480),
                 (512), (544), (576), (608), (640), (672), (704), (736), (768), (800), (832), (864), (896), (928), (960), (992)) AS x (i)
    CROSS JOIN (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11), (12), (13), (14), (15),
                       (16), (17), (18), (19), (20), (21), (22), (23), (24), (25), (26), (27), (28), (29), (30), (31)) AS y (i)
    WHERE x.i + y.i < DATALENGTH(@slots) / 2
) AS a
INNER JOIN [dbo].[chanq__slots] AS s WITH (XLOCK, READPAST, ROWLOCK, INDEX ([PK_chanq__slots]), FORCESEEK) ON s.queue = 'orders' AND s.slot = a.slot
WHERE EXISTS (SELECT 1 FROM [dbo].[chanq__consumers] AS m WITH (READUNCOMMITTED) WHERE m.id = @by AND m.until > @now)
  AND (s.consumer IS NULL OR s.consumer = @by
       OR NOT EXISTS (SELECT 1 FROM [dbo].[chanq__consumers] AS m WITH (READUNCOMMITTED, INDEX ([PK_chanq__consumers]), FORCESEEK) WHERE m.id = s.consumer AND m.until > @now))
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
