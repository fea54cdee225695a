-- @by binary(16), @list varbinary(max), @from bigint, @upto bigint, @n int, @behind int, @old bigint, @inline int, @key_list varbinary(max), @key_bytes varbinary(max)
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
DECLARE @keys TABLE (order_key varbinary(200) NOT NULL PRIMARY KEY CLUSTERED);
IF DATALENGTH(@key_list) > 0
    INSERT INTO @keys (order_key)
    SELECT SUBSTRING(@key_bytes, CONVERT(int, SUBSTRING(@key_list, 5 * (z.i + x.i + y.i) + 1, 4)) + 1, CONVERT(int, SUBSTRING(@key_list, 5 * (z.i + x.i + y.i) + 5, 1)))
    FROM (VALUES (0), (1024), (2048), (3072), (4096), (5120), (6144), (7168), (8192), (9216), (10240), (11264), (12288), (13312), (14336), (15360)) AS z (i)
    CROSS JOIN (VALUES (0), (32), (64), (96), (128), (160), (192), (224), (256), (288), (320), (352), (384), (416), (448), (480),
                 (512), (544), (576), (608), (640), (672), (704), (736), (768), (800), (832), (864), (896), (928), (960), (992)) AS x (i)
    CROSS JOIN (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11), (12), (13), (14), (15),
                       (16), (17), (18), (19), (20), (21), (22), (23), (24), (25), (26), (27), (28), (29), (30), (31)) AS y (i)
    WHERE z.i + x.i + y.i < DATALENGTH(@key_list) / 5;
DECLARE @blocked int = 0;
DECLARE @end bigint = CONVERT(bigint, 0x7FFFFFFFFFFFFFFF);
DECLARE @left int;
SET LOCK_TIMEOUT 5;
SET XACT_ABORT OFF;
BEGIN TRY
    IF @walks = 1
    BEGIN
        INSERT INTO @walked (seq, id, above)
        SELECT TOP (@behind) q.seq, q.id, 0
        FROM [dbo].[chanq_orders] AS q WITH (READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__seq]), FORCESEEK)
        WHERE q.seq > @from AND q.seq <= @upto AND EXISTS (SELECT 1 FROM @owned AS o WHERE o.slot = q.slot)
        ORDER BY q.seq
        OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
        SET @left = @behind - @@ROWCOUNT;
        IF @left <= 0 AND @end = CONVERT(bigint, 0x7FFFFFFFFFFFFFFF)
            SELECT @end = CASE WHEN COUNT(*) > 0 THEN MAX(w.seq) ELSE @end END
            FROM @walked AS w
            WHERE w.above = 0;
    END;
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
           CASE WHEN q.seq > @old AND DATALENGTH(q.body) <= @inline THEN 1 ELSE 0 END, 0, 0
    FROM @walked AS w
    INNER JOIN [dbo].[chanq_orders] AS q WITH (READCOMMITTEDLOCK, INDEX ([PK_chanq_orders]), FORCESEEK) ON q.id = w.id AND q.seq = w.seq
    WHERE EXISTS (SELECT 1 FROM @keys AS k WHERE k.order_key = q.order_key)
    OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
END TRY
BEGIN CATCH
    IF ERROR_NUMBER() <> 1222
        THROW;
    SET @blocked = 1;
END CATCH;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 50;
IF @blocked = 1
BEGIN
    DECLARE @range int = 0;
    DECLARE @met int;
    DECLARE @at bigint;
    DECLARE @whole bigint;
    DECLARE @stop bigint;
    DECLARE @next bigint;
    DECLARE @id binary(16);
    DECLARE @its smallint;
    DECLARE @passed TABLE (seq bigint NOT NULL, id binary(16) NOT NULL, PRIMARY KEY CLUSTERED (seq, id));
    SET @end = CONVERT(bigint, 0x7FFFFFFFFFFFFFFF);
    DELETE w
    FROM @walked AS w;
    WHILE @walks = 1 AND @range < 1
    BEGIN
        SET @left = @behind;
        SET @at = @from;
        SET @whole = @upto;
        SET @met = 0;
        SELECT @stop = CASE WHEN COUNT(*) < @left + 100 THEN @whole ELSE MAX(f.seq) END
        FROM (
            SELECT TOP (@left + 100) q.seq
            FROM [dbo].[chanq_orders] AS q WITH (READUNCOMMITTED, INDEX ([IX_chanq_orders__seq]), FORCESEEK)
            WHERE q.seq > @at AND q.seq <= @whole AND EXISTS (SELECT 1 FROM @owned AS o WHERE o.slot = q.slot)
            ORDER BY q.seq) AS f
        OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
        WHILE @left > 0 AND @at < @stop
        BEGIN
            SET @next = NULL;
            SELECT TOP (1) @next = d.seq, @id = d.id, @its = d.slot
            FROM [dbo].[chanq_orders] AS d WITH (READUNCOMMITTED, INDEX ([IX_chanq_orders__seq]), FORCESEEK)
            WHERE d.seq > @at AND d.seq <= @stop AND NOT EXISTS (
                SELECT 1
                FROM [dbo].[chanq_orders] AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__seq]), FORCESEEK)
                WHERE q.seq = d.seq AND q.slot = d.slot AND q.id = d.id)
            ORDER BY d.seq
            OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
            SET @met = @met + 1;
            IF @met > 100
            BEGIN
                SET @stop = CASE WHEN @next IS NULL THEN @stop ELSE @next - 1 END;
                SET @next = NULL;
            END;
            INSERT INTO @walked (seq, id, above)
            SELECT TOP (@left) q.seq, q.id, @range
            FROM [dbo].[chanq_orders] AS q WITH (READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__seq]), FORCESEEK)
            WHERE q.seq > @at AND q.seq <= CASE WHEN @next IS NULL THEN @stop ELSE @next - 1 END AND EXISTS (SELECT 1 FROM @owned AS o WHERE o.slot = q.slot)
            ORDER BY q.seq
            OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
            SET @left = @left - @@ROWCOUNT;
            IF @left > 0 AND @next IS NOT NULL
            BEGIN
                INSERT INTO @walked (seq, id, above)
                SELECT @next, @id, @range
                WHERE EXISTS (SELECT 1 FROM @owned AS o WHERE o.slot = @its)
                UNION ALL
                SELECT d.seq, d.id, @range
                FROM [dbo].[chanq_orders] AS d WITH (READUNCOMMITTED, INDEX ([IX_chanq_orders__seq]), FORCESEEK)
                WHERE d.seq = @next AND d.id <> @id AND EXISTS (SELECT 1 FROM @owned AS o WHERE o.slot = d.slot)
                OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
                SET @left = @left - @@ROWCOUNT;
            END;
            SET @at = CASE WHEN @next IS NULL THEN @stop ELSE @next END;
        END;
        IF @left > 0 AND @stop < @whole AND @stop < @end
            SET @end = @stop;
        IF @left <= 0 AND @end = CONVERT(bigint, 0x7FFFFFFFFFFFFFFF)
            SELECT @end = CASE WHEN COUNT(*) > 0 THEN MAX(w.seq) ELSE @end END
            FROM @walked AS w
            WHERE w.above = @range;
        SET @range = @range + 1;
    END;
    INSERT INTO @passed (seq, id)
    SELECT w.seq, w.id
    FROM @walked AS w
    WHERE NOT EXISTS (
        SELECT 1
        FROM [dbo].[chanq_orders] AS q WITH (READPAST, READCOMMITTEDLOCK, INDEX ([PK_chanq_orders]), FORCESEEK)
        WHERE q.id = w.id AND q.seq = w.seq)
    OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
    DELETE w
    FROM @walked AS w
    WHERE EXISTS (SELECT 1 FROM @passed AS p WHERE p.seq = w.seq AND p.id = w.id);
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
           CASE WHEN q.seq > @old AND DATALENGTH(q.body) <= @inline THEN 1 ELSE 0 END, 0, 0
    FROM @walked AS w
    INNER JOIN [dbo].[chanq_orders] AS q WITH (READCOMMITTEDLOCK, INDEX ([PK_chanq_orders]), FORCESEEK) ON q.id = w.id AND q.seq = w.seq
    WHERE EXISTS (SELECT 1 FROM @keys AS k WHERE k.order_key = q.order_key)
    OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
    INSERT INTO @rows (seq, id, slot, priority, fence, attempts, lapses, expired, enqueued_at, due_at, expires_at, size, order_key, wait, lives, holder, given, held, locked)
    SELECT q.seq, q.id, q.slot, q.priority, q.fence,
       CASE WHEN q.leased_by = @by OR q.attempts >= 2000000000 THEN q.attempts ELSE q.attempts + 1 END,
       CASE WHEN q.leased_by IS NOT NULL AND q.leased_by <> @by AND q.lapses < 32767 THEN q.lapses + 1 ELSE q.lapses END,
       CASE WHEN q.expires_at <= @now THEN 1 ELSE 0 END,
       DATEDIFF_BIG(millisecond, '19700101', q.enqueued_at), DATEDIFF_BIG(millisecond, '19700101', q.due_at), DATEDIFF_BIG(millisecond, '19700101', q.expires_at),
       CONVERT(bigint, 0), q.order_key,
       CASE WHEN q.lease_until > @now AND q.lease_until > q.due_at AND (q.leased_by IS NULL OR q.leased_by <> @by) THEN DATEDIFF_BIG(millisecond, @now, q.lease_until)
            WHEN q.due_at > @now THEN DATEDIFF_BIG(millisecond, @now, q.due_at) ELSE CONVERT(bigint, 0) END,
       CASE WHEN q.expires_at IS NULL THEN CONVERT(bigint, 0) WHEN q.expires_at <= @now THEN CONVERT(bigint, 1) ELSE DATEDIFF_BIG(millisecond, @now, q.expires_at) END,
       CASE WHEN q.leased_by IS NULL THEN 0 WHEN q.leased_by = @by THEN 1 ELSE 2 END,
           0, 0, 1
    FROM @passed AS p
    INNER JOIN [dbo].[chanq_orders] AS q WITH (READUNCOMMITTED, INDEX ([PK_chanq_orders]), FORCESEEK) ON q.id = p.id AND q.seq = p.seq
    OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
    DELETE p
    FROM @passed AS p
    WHERE EXISTS (SELECT 1 FROM @rows AS r WHERE r.seq = p.seq AND r.id = p.id);
    INSERT INTO @rows (seq, id, slot, priority, fence, attempts, lapses, expired, enqueued_at, due_at, expires_at, size, order_key, wait, lives, holder, given, held, locked)
    SELECT q.seq, q.id, q.slot, 0, q.fence, 0, 0, 0, 0, 0, NULL, 0, q.order_key, 0, 0, 0, 0, 0, 1
    FROM @passed AS p
    INNER JOIN [dbo].[chanq_orders] AS q WITH (READCOMMITTEDLOCK, INDEX ([PK_chanq_orders]), FORCESEEK) ON q.id = p.id AND q.seq = p.seq
    OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
END;
IF @blocked = 1
    DELETE r
    FROM @rows AS r
    WHERE NOT EXISTS (SELECT 1 FROM @keys AS k WHERE k.order_key = r.order_key);
DECLARE @count int = (SELECT COUNT(*) FROM @rows AS r);
IF @count >= @n
BEGIN
    SET @end = CASE WHEN @n > 0 THEN (SELECT MAX(f.seq) FROM (SELECT TOP (@n) r.seq FROM @rows AS r ORDER BY r.seq, r.id) AS f) ELSE @from END;
    DELETE r
    FROM @rows AS r
    WHERE r.seq > @end;
END;
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
SELECT CONVERT(binary(16), NULL) AS id, @walks AS priority, CONVERT(bigint, -1) AS fence, 0 AS attempts, 0 AS lapses, 0 AS expired,
       (SELECT s.redriven FROM [dbo].[chanq__queues] AS s WITH (READUNCOMMITTED) WHERE s.name = 'orders') AS enqueued_at, @end AS due_at, CONVERT(bigint, NULL) AS expires_at, CONVERT(varbinary(200), NULL) AS dedup_key, CONVERT(varbinary(100), NULL) AS type, CONVERT(varbinary(1), NULL) AS headers, CONVERT(varbinary(1), NULL) AS body, CONVERT(bigint, 0) AS size,
       CONVERT(smallint, 0) AS slot, CONVERT(bigint, 0) AS seq, CONVERT(varbinary(200), NULL) AS order_key, CONVERT(bigint, 0) AS wait, CONVERT(bigint, 0) AS lives,
       0 AS holder, 0 AS held, 0 AS given, 0 AS locked;
