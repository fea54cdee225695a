-- @i varbinary(8000),@most varbinary(8),@m0 varbinary(117),@k0 varbinary(200),@h0 varbinary(max),@b0 varbinary(max)
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
SET LOCK_TIMEOUT 100;
BEGIN TRANSACTION;
DECLARE @met TABLE (n int NOT NULL PRIMARY KEY CLUSTERED, id binary(16) NOT NULL);
INSERT INTO @met (n, id)
SELECT v.n, k.id
FROM (VALUES (@i,0,@k0)) AS v (i, n, k)
INNER JOIN [dbo].[chanq_orders] AS k WITH (READCOMMITTEDLOCK, INDEX ([UX_chanq_orders__dedup]), FORCESEEK) ON k.dedup_key = v.k AND k.dedup_key IS NOT NULL
WHERE v.n % 256 < DATALENGTH(v.i) / 16
  AND NOT EXISTS (
    SELECT 1
    FROM [dbo].[chanq_orders] AS e WITH (READCOMMITTEDLOCK, INDEX ([PK_chanq_orders]), FORCESEEK)
    WHERE e.id = CONVERT(binary(16), SUBSTRING(v.i, 16 * (v.n % 256) + 1, 16)))
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
UPDATE q
SET dedup_key = NULL
FROM @met AS w
INNER JOIN [dbo].[chanq_orders] AS q WITH (UPDLOCK, ROWLOCK, INDEX ([PK_chanq_orders]), FORCESEEK) ON q.id = w.id
WHERE q.dedup_key IS NOT NULL AND q.leased_by IS NOT NULL
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
DECLARE @now datetime2(3) = SYSUTCDATETIME();
UPDATE q
SET fence = q.fence + 1,
    attempts = 0,
    lapses = 0,
    last_error = NULL,
    history = NULL,
    priority = CONVERT(smallint, SUBSTRING(v.m, 1, 1)) - 1,
    due_at = CASE
        WHEN DATEADD(millisecond, CONVERT(int, SUBSTRING(@most, 5, 4)), DATEADD(day, CONVERT(int, SUBSTRING(@most, 1, 4)), q.enqueued_at)) > DATEADD(millisecond, CONVERT(int, SUBSTRING(v.m, 6, 4)), DATEADD(day, CONVERT(int, SUBSTRING(v.m, 2, 4)), @now)) THEN DATEADD(millisecond, CONVERT(int, SUBSTRING(v.m, 6, 4)), DATEADD(day, CONVERT(int, SUBSTRING(v.m, 2, 4)), @now))
        WHEN DATEADD(millisecond, CONVERT(int, SUBSTRING(@most, 5, 4)), DATEADD(day, CONVERT(int, SUBSTRING(@most, 1, 4)), q.enqueued_at)) > @now THEN DATEADD(millisecond, CONVERT(int, SUBSTRING(@most, 5, 4)), DATEADD(day, CONVERT(int, SUBSTRING(@most, 1, 4)), q.enqueued_at))
        WHEN q.due_at > @now AND @most IS NOT NULL THEN @now
        WHEN q.due_at < @now AND q.priority <> CONVERT(smallint, SUBSTRING(v.m, 1, 1)) - 1 THEN @now
        ELSE q.due_at END,
    expires_at = CASE WHEN @most IS NULL AND q.due_at > @now THEN CASE WHEN SUBSTRING(v.m, 10, 8) <> 0x0000000000000000
            THEN DATEADD(millisecond, CONVERT(int, SUBSTRING(v.m, 14, 4)), DATEADD(day, CONVERT(int, SUBSTRING(v.m, 10, 4)), q.due_at)) END ELSE CASE WHEN SUBSTRING(v.m, 10, 8) <> 0x0000000000000000
            THEN DATEADD(millisecond, CONVERT(int, SUBSTRING(v.m, 14, 4)), DATEADD(day, CONVERT(int, SUBSTRING(v.m, 10, 4)), @now)) END END,
    [type] = CASE WHEN DATALENGTH(v.m) > 17 THEN SUBSTRING(v.m, 18, 100) END,
    headers = v.h,
    body = v.b
OUTPUT inserted.id, inserted.dedup_key
FROM (VALUES (@i,0,@m0,@k0,@h0,@b0)) AS v (i, n, m, k, h, b)
INNER JOIN @met AS w ON w.n = v.n
INNER JOIN [dbo].[chanq_orders] AS q WITH (UPDLOCK, ROWLOCK, INDEX ([PK_chanq_orders]), FORCESEEK) ON q.id = w.id
WHERE q.dedup_key IS NOT NULL AND q.leased_by IS NULL
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
DECLARE @new TABLE (n int NOT NULL PRIMARY KEY CLUSTERED);
INSERT INTO @new (n)
SELECT v.n
FROM (VALUES (@i,0,@k0)) AS v (i, n, k)
WHERE v.n % 256 < DATALENGTH(v.i) / 16
  AND NOT EXISTS (
    SELECT 1
    FROM [dbo].[chanq_orders] AS e WITH (READCOMMITTEDLOCK, INDEX ([PK_chanq_orders]), FORCESEEK)
    WHERE e.id = CONVERT(binary(16), SUBSTRING(v.i, 16 * (v.n % 256) + 1, 16)))
  AND NOT EXISTS (
    SELECT 1
    FROM [dbo].[chanq_orders] AS e WITH (READCOMMITTEDLOCK, INDEX ([UX_chanq_orders__dedup]), FORCESEEK)
    WHERE e.dedup_key = v.k AND e.dedup_key IS NOT NULL)
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
INSERT INTO [dbo].[chanq_orders] WITH (ROWLOCK) (id, priority, due_at, enqueued_at, expires_at, [type], dedup_key, headers, body)
OUTPUT inserted.id, inserted.dedup_key
SELECT CONVERT(binary(16), SUBSTRING(v.i, 16 * (v.n % 256) + 1, 16)),
       CONVERT(smallint, SUBSTRING(v.m, 1, 1)) - 1,
       DATEADD(millisecond, CONVERT(int, SUBSTRING(v.m, 6, 4)), DATEADD(day, CONVERT(int, SUBSTRING(v.m, 2, 4)), @now)),
       @now,
       CASE WHEN SUBSTRING(v.m, 10, 8) <> 0x0000000000000000
            THEN DATEADD(millisecond, CONVERT(int, SUBSTRING(v.m, 14, 4)), DATEADD(day, CONVERT(int, SUBSTRING(v.m, 10, 4)), @now)) END,
       CASE WHEN DATALENGTH(v.m) > 17 THEN SUBSTRING(v.m, 18, 100) END, v.k, v.h, v.b
FROM (VALUES (@i,0,@m0,@k0,@h0,@b0)) AS v (i, n, m, k, h, b)
INNER JOIN @new AS w ON w.n = v.n
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
COMMIT TRANSACTION;
