-- @slots varbinary(8000), @key_list varbinary(max), @key_bytes varbinary(max)
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
DECLARE @rows TABLE (seq bigint NOT NULL PRIMARY KEY CLUSTERED, slot smallint NOT NULL, order_key varbinary(200) NULL, held int NOT NULL);
INSERT INTO @rows (seq, slot, order_key, held)
SELECT a.o, a.slot, a.order_key, 0
FROM (
    SELECT x.i + y.i + 1 AS o,
           CONVERT(smallint, SUBSTRING(@slots, 2 * (x.i + y.i) + 1, 2)) AS slot,
           SUBSTRING(@key_bytes, CONVERT(int, SUBSTRING(@key_list, 5 * (x.i + y.i) + 1, 4)) + 1, CONVERT(int, SUBSTRING(@key_list, 5 * (x.i + y.i) + 5, 1))) AS order_key
    FROM (VALUES (0), (32), (64), (96), (128), (160), (192), (224), (256), (288), (320), (352), (384), (416), (448), (480),
                 (512), (544), (576), (608), (640), (672), (704), (736), (768), (800), (832), (864), (896), (928), (960), (992)) AS x (i)
    CROSS JOIN (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11), (12), (13), (14), (15),
                       (16), (17), (18), (19), (20), (21), (22), (23), (24), (25), (26), (27), (28), (29), (30), (31)) AS y (i)
    WHERE x.i + y.i < DATALENGTH(@key_list) / 5
) AS a
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
IF NOT EXISTS (SELECT 1 FROM [dbo].[chanq__queues] AS s WITH (READPAST, READCOMMITTEDLOCK) WHERE s.name = 'orders' AND s.holds = 0)
BEGIN
    DECLARE @row bigint = 0;
    DECLARE @to bigint = CONVERT(bigint, 0x7FFFFFFFFFFFFFFF);
SET LOCK_TIMEOUT 5;
SET XACT_ABORT OFF;
    WHILE @row IS NOT NULL
    BEGIN
        BEGIN TRY
            UPDATE r
            SET held = 1
            FROM @rows AS r
            WHERE r.seq >= @row AND r.seq <= @to AND r.order_key IS NOT NULL AND EXISTS (
                SELECT 1
                FROM [dbo].[chanq_orders__dead] AS d WITH (READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__dead_key]), FORCESEEK)
                WHERE d.slot = r.slot AND d.order_key = r.order_key AND d.order_key IS NOT NULL)
            OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
        END TRY
        BEGIN CATCH
            IF ERROR_NUMBER() <> 1222
                THROW;
            UPDATE r
            SET held = 1
            FROM @rows AS e
            INNER JOIN @rows AS r ON r.slot = e.slot AND r.order_key = e.order_key
            WHERE e.seq = @row;
            SET @to = @row;
            SET LOCK_TIMEOUT 0;
        END CATCH;
        SET @row = (SELECT MIN(r.seq) FROM @rows AS r WHERE r.seq > @to AND r.held = 0 AND r.order_key IS NOT NULL);
        SET @to = @row;
    END;
SET XACT_ABORT ON;
END;
SELECT r.seq AS o, r.held, (SELECT s.redriven FROM [dbo].[chanq__queues] AS s WITH (READUNCOMMITTED) WHERE s.name = 'orders') AS redriven
FROM @rows AS r;
