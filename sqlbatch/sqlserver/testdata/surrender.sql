-- @ids varbinary(8000), @by binary(16)
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @mark bigint = DATEDIFF_BIG(millisecond, '19700101', @now) * 1048576;
UPDATE q
SET lease_until = '19700101',
    fence = CASE WHEN q.fence > CONVERT(bigint, 0x7ce66b50e2840000) THEN @mark ELSE q.fence + 1 END,
    lapses = CASE WHEN q.lapses < 32767 THEN q.lapses + 1 ELSE q.lapses END,
    leased_by = NULL,
    history = CONVERT(nvarchar(2000), CONCAT(DATEDIFF_BIG(millisecond, '19700101', CASE WHEN q.lease_until < @now THEN q.lease_until ELSE @now END), N' ', DATEDIFF_BIG(millisecond, '19700101', CASE WHEN q.lease_until < @now THEN q.lease_until ELSE @now END) - q.fence / 1048576, N' ', SUBSTRING(h.name, 1, 60), CONVERT(nvarchar(1), 0x0A00),
        N'the lease expired', CONVERT(nvarchar(1), 0x1E00), q.history))
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
CROSS APPLY (SELECT MIN(m.name) AS name FROM [dbo].[chanq__consumers] AS m WITH (READUNCOMMITTED) WHERE m.id = q.leased_by) AS h
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
