-- @by binary(16), @list varbinary(max), @ids varbinary(8000)
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
SET DEADLOCK_PRIORITY LOW;
SET LOCK_TIMEOUT 50;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @walks int = 0;
DECLARE @owned TABLE (slot smallint NOT NULL PRIMARY KEY CLUSTERED);
DECLARE @walked TABLE (seq bigint NOT NULL, id binary(16) NOT NULL, above int NOT NULL, PRIMARY KEY CLUSTERED (seq, id));
DECLARE @rows TABLE (seq bigint NOT NULL, id binary(16) NOT NULL, slot smallint NOT NULL, priority int NOT NULL, fence bigint NOT NULL, attempts int NOT NULL, lapses int NOT NULL, expired int NOT NULL,
    enqueued_at bigint NOT NULL, due_at bigint NOT NULL, expires_at bigint NULL, size bigint NOT NULL, order_key varbinary(200) NULL, wait bigint NOT NULL, lives bigint NOT NULL,
    holder int NOT NULL, given int NOT NULL, held int NOT NULL, locked int NOT NULL, PRIMARY KEY CLUSTERED (seq, id));
INSERT INTO @owned (slot)
SELECT s.slot
FROM (
    SELECT CONVERT(smallint, SUBSTRING(@list, 11 * (x.i + y.i) + 1, 2)) AS slot,
           CONVERT(bigint, SUBSTRING(@list, 11 * (x.i + y.i) + 3, 8)) AS fence,
           CONVERT(int, SUBSTRING(@list, 11 * (x.i + y.i) + 11, 1)) AS doubt
    FROM (VALUES (0), (32), (64), (96), (128), (160), (192), (224), (256), (288), (320), (352), (384), (416), (448), (480),
                 (512), (544), (576), (608), (640), (672), (704), (736), (768), (800), (832), (864), (896), (928), (960), (992)) AS x (i)
    CROSS JOIN (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11), (12), (13), (14), (15),
                       (16), (17), (18), (19), (20), (21), (22), (23), (24), (25), (26), (27), (28), (29), (30), (31)) AS y (i)
    WHERE x.i + y.i < DATALENGTH(@list) / 11
) AS a
INNER JOIN [dbo].[chanq__slots] AS s WITH (READUNCOMMITTED, INDEX ([PK_chanq__slots]), FORCESEEK) ON s.queue = 'orders' AND s.slot = a.slot
WHERE s.fence = a.fence AND s.consumer = @by
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
IF (SELECT COUNT(*) FROM @owned AS o) = DATALENGTH(@list) / 11 AND EXISTS (SELECT 1 FROM [dbo].[chanq__consumers] AS m WITH (READUNCOMMITTED) WHERE m.id = @by AND m.until > @now) AND NOT EXISTS (SELECT 1 FROM [dbo].[chanq__queues] AS s WITH (READUNCOMMITTED) WHERE s.name = 'orders' AND s.paused = 1)
    SET @walks = 1;
DECLARE @asked TABLE (id binary(16) NOT NULL PRIMARY KEY CLUSTERED);
DECLARE @locked TABLE (id binary(16) NOT NULL PRIMARY KEY CLUSTERED);
DECLARE @id binary(16);
IF @walks = 1
BEGIN
    INSERT INTO @rows (seq, id, slot, priority, fence, attempts, lapses, expired, enqueued_at, due_at, expires_at, size, order_key, wait, lives, holder, given, held, locked)
    SELECT q.seq, q.id, q.slot, q.priority, q.fence,
       CASE WHEN q.leased_by = @by OR q.attempts >= 2000000000 THEN q.attempts ELSE q.attempts + 1 END,
       CASE WHEN q.leased_by IS NOT NULL AND q.leased_by <> @by AND q.lapses < 32767 THEN q.lapses + 1 ELSE q.lapses END,
       CASE WHEN q.expires_at <= @now THEN 1 ELSE 0 END,
       DATEDIFF_BIG(millisecond, '19700101', q.enqueued_at), DATEDIFF_BIG(millisecond, '19700101', q.due_at), DATEDIFF_BIG(millisecond, '19700101', q.expires_at),
       DATALENGTH(q.body), q.order_key,
       CASE WHEN q.lease_until > @now AND q.lease_until > q.due_at AND (q.leased_by IS NULL OR q.leased_by <> @by) THEN DATEDIFF_BIG(millisecond, @now, q.lease_until)
            WHEN q.due_at > @now THEN DATEDIFF_BIG(millisecond, @now, q.due_at) ELSE CONVERT(bigint, 0) END,
       CASE WHEN q.expires_at IS NULL THEN CONVERT(bigint, 0) WHEN q.expires_at <= @now THEN CONVERT(bigint, 1) ELSE DATEDIFF_BIG(millisecond, @now, q.expires_at) END,
       CASE WHEN q.leased_by IS NULL THEN 0 WHEN q.leased_by = @by THEN 1 ELSE 2 END,
           0, 0, 2
    FROM (
    SELECT CONVERT(binary(16), SUBSTRING(@ids, 16 * (x.i + y.i) + 1, 16)) AS id
    FROM (VALUES (0), (20), (40), (60), (80), (100), (120), (140), (160), (180),
                 (200), (220), (240), (260), (280), (300), (320), (340), (360), (380)) AS x (i)
    CROSS JOIN (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11),
                       (12), (13), (14), (15), (16), (17), (18), (19)) AS y (i)
    WHERE x.i + y.i < DATALENGTH(@ids) / 16
) AS a
INNER JOIN [dbo].[chanq_orders] AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ([PK_chanq_orders]), FORCESEEK) ON q.id = a.id
    WHERE EXISTS (SELECT 1 FROM @owned AS o WHERE o.slot = q.slot)
    OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
    SET LOCK_TIMEOUT 0;
SET XACT_ABORT OFF;
    SET @id = (
        SELECT MIN(a.id)
        FROM (
    SELECT CONVERT(binary(16), SUBSTRING(@ids, 16 * (x.i + y.i) + 1, 16)) AS id
    FROM (VALUES (0), (20), (40), (60), (80), (100), (120), (140), (160), (180),
                 (200), (220), (240), (260), (280), (300), (320), (340), (360), (380)) AS x (i)
    CROSS JOIN (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11),
                       (12), (13), (14), (15), (16), (17), (18), (19)) AS y (i)
    WHERE x.i + y.i < DATALENGTH(@ids) / 16
) AS a
WHERE NOT EXISTS (SELECT 1 FROM @rows AS r WHERE r.id = a.id) AND NOT EXISTS (SELECT 1 FROM @asked AS k WHERE k.id = a.id));

    WHILE @id IS NOT NULL
    BEGIN
        BEGIN TRY
            INSERT INTO @rows (seq, id, slot, priority, fence, attempts, lapses, expired, enqueued_at, due_at, expires_at, size, order_key, wait, lives, holder, given, held, locked)
            SELECT q.seq, q.id, q.slot, q.priority, q.fence,
       CASE WHEN q.leased_by = @by OR q.attempts >= 2000000000 THEN q.attempts ELSE q.attempts + 1 END,
       CASE WHEN q.leased_by IS NOT NULL AND q.leased_by <> @by AND q.lapses < 32767 THEN q.lapses + 1 ELSE q.lapses END,
       CASE WHEN q.expires_at <= @now THEN 1 ELSE 0 END,
       DATEDIFF_BIG(millisecond, '19700101', q.enqueued_at), DATEDIFF_BIG(millisecond, '19700101', q.due_at), DATEDIFF_BIG(millisecond, '19700101', q.expires_at),
       DATALENGTH(q.body), q.order_key,
       CASE WHEN q.lease_until > @now AND q.lease_until > q.due_at AND (q.leased_by IS NULL OR q.leased_by <> @by) THEN DATEDIFF_BIG(millisecond, @now, q.lease_until)
            WHEN q.due_at > @now THEN DATEDIFF_BIG(millisecond, @now, q.due_at) ELSE CONVERT(bigint, 0) END,
       CASE WHEN q.expires_at IS NULL THEN CONVERT(bigint, 0) WHEN q.expires_at <= @now THEN CONVERT(bigint, 1) ELSE DATEDIFF_BIG(millisecond, @now, q.expires_at) END,
       CASE WHEN q.leased_by IS NULL THEN 0 WHEN q.leased_by = @by THEN 1 ELSE 2 END,
                   0, 0, 2
            FROM [dbo].[chanq_orders] AS q WITH (READCOMMITTEDLOCK, INDEX ([PK_chanq_orders]), FORCESEEK)
            WHERE q.id = @id AND EXISTS (SELECT 1 FROM @owned AS o WHERE o.slot = q.slot);
        END TRY
        BEGIN CATCH
            IF ERROR_NUMBER() <> 1222
                THROW;
            INSERT INTO @locked (id) VALUES (@id);
        END CATCH;
        INSERT INTO @asked (id) VALUES (@id);
        SET @id = (
        SELECT MIN(a.id)
        FROM (
    SELECT CONVERT(binary(16), SUBSTRING(@ids, 16 * (x.i + y.i) + 1, 16)) AS id
    FROM (VALUES (0), (20), (40), (60), (80), (100), (120), (140), (160), (180),
                 (200), (220), (240), (260), (280), (300), (320), (340), (360), (380)) AS x (i)
    CROSS JOIN (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11),
                       (12), (13), (14), (15), (16), (17), (18), (19)) AS y (i)
    WHERE x.i + y.i < DATALENGTH(@ids) / 16
) AS a
WHERE NOT EXISTS (SELECT 1 FROM @rows AS r WHERE r.id = a.id) AND NOT EXISTS (SELECT 1 FROM @asked AS k WHERE k.id = a.id));

    END;
SET XACT_ABORT ON;
    SET LOCK_TIMEOUT 50;
END;
SELECT l.id, 0 AS priority, CONVERT(bigint, 0) AS fence, 0 AS attempts, 0 AS lapses, 0 AS expired, CONVERT(bigint, 0) AS enqueued_at,
       CONVERT(bigint, 0) AS due_at, CONVERT(bigint, NULL) AS expires_at, CONVERT(varbinary(200), NULL) AS dedup_key, CONVERT(varbinary(100), NULL) AS type, CONVERT(varbinary(1), NULL) AS headers, CONVERT(varbinary(1), NULL) AS body, CONVERT(bigint, 0) AS size, CONVERT(smallint, 0) AS slot, CONVERT(bigint, 0) AS seq, CONVERT(varbinary(200), NULL) AS order_key, CONVERT(bigint, 0) AS wait, CONVERT(bigint, 0) AS lives,
       0 AS holder, 0 AS held, 0 AS given, 1 AS locked
FROM @locked AS l;
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
UPDATE r
SET given = 2
OUTPUT inserted.id, inserted.priority, inserted.fence, inserted.attempts, inserted.lapses, inserted.expired, inserted.enqueued_at, inserted.due_at, inserted.expires_at, c.dedup_key, c.type, c.headers, c.body, inserted.size,
       inserted.slot, inserted.seq, inserted.order_key, inserted.wait, inserted.lives, inserted.holder, inserted.held, 1 AS given, inserted.locked
FROM @rows AS r
INNER JOIN [dbo].[chanq_orders] AS c WITH (READPAST, READCOMMITTEDLOCK, INDEX ([PK_chanq_orders]), FORCESEEK) ON c.id = r.id AND c.fence = r.fence
WHERE r.given = 1
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
SELECT r.id, r.priority, r.fence, r.attempts, r.lapses, r.expired, r.enqueued_at, r.due_at, r.expires_at, CONVERT(varbinary(200), NULL) AS dedup_key, CONVERT(varbinary(100), NULL) AS type, CONVERT(varbinary(1), NULL) AS headers, CONVERT(varbinary(1), NULL) AS body, r.size,
       r.slot, r.seq, r.order_key, r.wait, r.lives, r.holder, r.held, 0 AS given, r.locked
FROM @rows AS r
WHERE r.given < 2
ORDER BY r.seq, r.id;
SELECT CONVERT(binary(16), NULL) AS id, @walks AS priority, CONVERT(bigint, 0) AS fence, 0 AS attempts, 0 AS lapses, 0 AS expired,
       (SELECT s.redriven FROM [dbo].[chanq__queues] AS s WITH (READUNCOMMITTED) WHERE s.name = 'orders') AS enqueued_at, CONVERT(bigint, 0) AS due_at, CONVERT(bigint, NULL) AS expires_at, CONVERT(varbinary(200), NULL) AS dedup_key, CONVERT(varbinary(100), NULL) AS type, CONVERT(varbinary(1), NULL) AS headers, CONVERT(varbinary(1), NULL) AS body, CONVERT(bigint, 0) AS size,
       CONVERT(smallint, 0) AS slot, CONVERT(bigint, 0) AS seq, CONVERT(varbinary(200), NULL) AS order_key, CONVERT(bigint, 0) AS wait, CONVERT(bigint, 0) AS lives,
       0 AS holder, 0 AS held, 0 AS given, 0 AS locked;
