-- @a varbinary(8000)
SET ROWCOUNT 0;
DECLARE @epoch datetime2(3) = '19700101';
UPDATE q
SET visible_at = DATEADD(millisecond, a.due_ms, DATEADD(day, a.due_days, @epoch)),
    fence = q.fence + 1,
    attempts = q.attempts - 1,
    leased_by = NULL
OUTPUT deleted.id, deleted.fence
FROM (
    SELECT CONVERT(binary(16), SUBSTRING(@a, 32 * (x.i + y.i) + 1, 16)) AS id,
           CONVERT(bigint, SUBSTRING(@a, 32 * (x.i + y.i) + 17, 8)) AS fence,
           CONVERT(int, SUBSTRING(@a, 32 * (x.i + y.i) + 25, 4)) AS due_days,
           CONVERT(int, SUBSTRING(@a, 32 * (x.i + y.i) + 29, 4)) AS due_ms
    FROM (VALUES (0), (20), (40), (60), (80), (100), (120), (140), (160), (180),
                 (200), (220), (240), (260), (280), (300), (320), (340), (360), (380)) AS x (i)
    CROSS JOIN (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11),
                       (12), (13), (14), (15), (16), (17), (18), (19)) AS y (i)
    WHERE x.i + y.i < DATALENGTH(@a) / 32
) AS a
INNER JOIN [dbo].[chanq_orders] AS q WITH (ROWLOCK, INDEX ([PK_chanq_orders]), FORCESEEK) ON q.id = a.id AND q.fence = a.fence
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
