-- @slots varbinary(8000), @limit int
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET LOCK_TIMEOUT 100;
DECLARE @keys TABLE (slot smallint NOT NULL, order_key varbinary(200) NOT NULL, n int NOT NULL, PRIMARY KEY CLUSTERED (slot, order_key));
DECLARE @n int = 1;
DECLARE @found int;
INSERT INTO @keys (slot, order_key, n)
SELECT a.slot, f.order_key, 1
FROM (
    SELECT CONVERT(smallint, SUBSTRING(@slots, 2 * (x.i + y.i) + 1, 2)) AS slot
    FROM (VALUES (0), (32), (64), (96), (128), (160), (192), (224), (256), (288), (320), (352), (384), (416), (448), (480),
                 (512), (544), (576), (608), (640), (672), (704), (736), (768), (800), (832), (864), (896), (928), (960), (992)) AS x (i)
    CROSS JOIN (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11), (12), (13), (14), (15),
                       (16), (17), (18), (19), (20), (21), (22), (23), (24), (25), (26), (27), (28), (29), (30), (31)) AS y (i)
    WHERE x.i + y.i < DATALENGTH(@slots) / 2
) AS a
CROSS APPLY (
    SELECT TOP (1) d.order_key
    FROM [dbo].[chanq_orders_dead] AS d WITH (READCOMMITTEDLOCK, INDEX ([IX_chanq_orders_dead_line]), FORCESEEK)
    WHERE d.slot = a.slot AND d.order_key IS NOT NULL
    ORDER BY d.order_key) AS f
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
SET @found = @@ROWCOUNT;
WHILE @found > 0 AND @n < @limit
BEGIN
    INSERT INTO @keys (slot, order_key, n)
    SELECT k.slot, f.order_key, @n + 1
    FROM @keys AS k
    CROSS APPLY (
        SELECT TOP (1) d.order_key
        FROM [dbo].[chanq_orders_dead] AS d WITH (READCOMMITTEDLOCK, INDEX ([IX_chanq_orders_dead_line]), FORCESEEK)
        WHERE d.slot = k.slot AND d.order_key > k.order_key AND d.order_key IS NOT NULL
        ORDER BY d.order_key) AS f
    WHERE k.n = @n
    OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
    SET @found = @@ROWCOUNT;
    SET @n = @n + 1;
END;
SELECT k.slot, k.order_key FROM @keys AS k WHERE k.n <= @limit;
