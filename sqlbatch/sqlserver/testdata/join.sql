-- @id binary(16), @name nvarchar(200), @host nvarchar(200), @process int, @for_days int, @for_ms int
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
SET LOCK_TIMEOUT 100;
DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @until datetime2(3) = DATEADD(millisecond, @for_ms, DATEADD(day, @for_days, @now));
UPDATE [dbo].[chanq__consumers] WITH (ROWLOCK)
SET queue = 'orders', name = @name, host = @host, process = @process, until = CASE WHEN until > @until THEN until ELSE @until END, heard_at = @now
WHERE id = @id;
IF @@ROWCOUNT = 0
BEGIN
    INSERT INTO [dbo].[chanq__consumers] WITH (ROWLOCK) (id, queue, name, host, process, since, until, heard_at)
    VALUES (@id, 'orders', @name, @host, @process, @now, @until, @now);
    DELETE m
    FROM [dbo].[chanq__consumers] AS m WITH (UPDLOCK, READPAST, ROWLOCK)
    WHERE m.until < DATEADD(day, -1, @now);
END;
