-- @cause smallint, @fingerprint bigint, @count int, @limit bigint
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
DECLARE @groups TABLE (cause smallint NOT NULL, fingerprint bigint NOT NULL, PRIMARY KEY CLUSTERED (cause, fingerprint));
DECLARE @next bigint;
WHILE @count > 0 AND @cause IS NOT NULL
BEGIN
    SET @next = (SELECT TOP (1) d.fingerprint FROM [dbo].[chanq_orders__dead] AS d WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__dead_cause]), FORCESEEK) WHERE d.cause = @cause AND d.fingerprint > @fingerprint ORDER BY d.fingerprint);
    IF @next IS NULL
    BEGIN
        SET @cause = (SELECT TOP (1) d.cause FROM [dbo].[chanq_orders__dead] AS d WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__dead_cause]), FORCESEEK) WHERE d.cause > @cause ORDER BY d.cause);
        SET @next = (SELECT TOP (1) CASE WHEN d.fingerprint IS NULL THEN CONVERT(bigint, 0x8000000000000000) ELSE d.fingerprint END FROM [dbo].[chanq_orders__dead] AS d WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__dead_cause]), FORCESEEK) WHERE d.cause = @cause ORDER BY d.fingerprint);
    END;
    IF @next IS NOT NULL
        INSERT INTO @groups (cause, fingerprint) VALUES (@cause, @next);
    SET @fingerprint = @next;
    SET @count = @count - 1;
END;
SELECT r.cause, r.fingerprint, r.messages, r.first, r.last, r.id, r.last_error
FROM (
    SELECT g.cause, g.fingerprint AS fingerprint, n.messages,
           DATEDIFF_BIG(millisecond, '19700101', f.ended_at) AS first, DATEDIFF_BIG(millisecond, '19700101', l.ended_at) AS last, l.id, l.last_error
    FROM @groups AS g
    CROSS APPLY (SELECT COUNT_BIG(*) AS messages FROM (
        SELECT TOP (@limit) d.id FROM [dbo].[chanq_orders__dead] AS d WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__dead_cause]), FORCESEEK) WHERE d.cause = g.cause AND g.fingerprint <> CONVERT(bigint, 0x8000000000000000) AND d.fingerprint = g.fingerprint) AS c) AS n
    CROSS APPLY (SELECT TOP (1) d.ended_at FROM [dbo].[chanq_orders__dead] AS d WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__dead_cause]), FORCESEEK) WHERE d.cause = g.cause AND g.fingerprint <> CONVERT(bigint, 0x8000000000000000) AND d.fingerprint = g.fingerprint ORDER BY d.ended_at, d.id) AS f
    CROSS APPLY (SELECT TOP (1) d.id, d.ended_at, d.last_error FROM [dbo].[chanq_orders__dead] AS d WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__dead_cause]), FORCESEEK) WHERE d.cause = g.cause AND g.fingerprint <> CONVERT(bigint, 0x8000000000000000) AND d.fingerprint = g.fingerprint ORDER BY d.ended_at DESC, d.id DESC) AS l
    UNION ALL
    SELECT g.cause, CONVERT(bigint, NULL) AS fingerprint, n.messages,
           DATEDIFF_BIG(millisecond, '19700101', f.ended_at) AS first, DATEDIFF_BIG(millisecond, '19700101', l.ended_at) AS last, l.id, l.last_error
    FROM @groups AS g
    CROSS APPLY (SELECT COUNT_BIG(*) AS messages FROM (
        SELECT TOP (@limit) d.id FROM [dbo].[chanq_orders__dead] AS d WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__dead_cause]), FORCESEEK) WHERE d.cause = g.cause AND g.fingerprint = CONVERT(bigint, 0x8000000000000000) AND d.fingerprint IS NULL) AS c) AS n
    CROSS APPLY (SELECT TOP (1) d.ended_at FROM [dbo].[chanq_orders__dead] AS d WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__dead_cause]), FORCESEEK) WHERE d.cause = g.cause AND g.fingerprint = CONVERT(bigint, 0x8000000000000000) AND d.fingerprint IS NULL ORDER BY d.ended_at, d.id) AS f
    CROSS APPLY (SELECT TOP (1) d.id, d.ended_at, d.last_error FROM [dbo].[chanq_orders__dead] AS d WITH (READPAST, READCOMMITTEDLOCK, INDEX ([IX_chanq_orders__dead_cause]), FORCESEEK) WHERE d.cause = g.cause AND g.fingerprint = CONVERT(bigint, 0x8000000000000000) AND d.fingerprint IS NULL ORDER BY d.ended_at DESC, d.id DESC) AS l
) AS r
ORDER BY r.cause, r.fingerprint
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
