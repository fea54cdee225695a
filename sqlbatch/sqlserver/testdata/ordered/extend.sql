-- @a varbinary(8000), @lease_days int, @lease_ms int, @by binary(16)
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
SET LOCK_TIMEOUT 100;
DECLARE @until datetime2(3) = DATEADD(millisecond, @lease_ms, DATEADD(day, @lease_days, SYSUTCDATETIME()));
UPDATE q
SET lease_until = CASE WHEN g.until < CASE WHEN q.lease_until > @until THEN q.lease_until ELSE @until END THEN g.until
                       WHEN g.until IS NULL AND q.lease_until < CASE WHEN q.lease_until > @until THEN q.lease_until ELSE @until END THEN q.lease_until
                       ELSE CASE WHEN q.lease_until > @until THEN q.lease_until ELSE @until END END,
    attempts = CASE WHEN q.leased_by IS NULL AND q.attempts < 2000000000 THEN q.attempts + 1 ELSE q.attempts END,
    leased_by = CASE WHEN q.leased_by IS NULL THEN @by ELSE q.leased_by END
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
INNER JOIN [dbo].[chanq_orders] AS q WITH (UPDLOCK, READPAST, ROWLOCK, INDEX ([PK_chanq_orders]), FORCESEEK) ON q.id = a.id AND q.fence = a.fence
CROSS APPLY (SELECT MIN(m.until) AS until FROM [dbo].[chanq__consumers] AS m WITH (READUNCOMMITTED) WHERE m.id = CASE WHEN q.leased_by IS NULL THEN @by ELSE q.leased_by END) AS g
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
