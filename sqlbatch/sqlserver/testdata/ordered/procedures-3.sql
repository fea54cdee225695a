CREATE OR ALTER PROCEDURE [dbo].[chanq_orders__send]
    @text nvarchar(max) = NULL,
    @key nvarchar(201) = NULL,
    @dedup_key nvarchar(201) = NULL,
    @headers nvarchar(max) = NULL,
    @body varbinary(max) = NULL,
    @id binary(16) = NULL OUTPUT,
    @ttl_ms bigint = NULL,
    @type varchar(101) = NULL
AS
BEGIN
    SET XACT_ABORT ON;
    SET NOCOUNT ON;
    SET ANSI_PADDING, ANSI_WARNINGS, ARITHABORT, CONCAT_NULL_YIELDS_NULL ON;
    SET NUMERIC_ROUNDABORT OFF;
    SET ROWCOUNT 0;
    DECLARE @now datetime2(3) = SYSUTCDATETIME();
    DECLARE @dedup varbinary(804);
    IF DATALENGTH(@dedup_key) > 0
        EXEC [dbo].[chanq__utf8] @dedup_key, @dedup OUTPUT;
    IF @id IS NULL
        SET @id = CONVERT(binary(6), DATEDIFF_BIG(millisecond, '19700101', SYSUTCDATETIME()))
            + CONVERT(binary(2), 28672 + CONVERT(int, SUBSTRING(CONVERT(binary(16), NEWID()), 1, 2)) % 4096)
            + SUBSTRING(CONVERT(binary(16), NEWID()), 9, 8);
    IF @body IS NULL
        SET @body = CONVERT(varbinary(max), @text);
    DECLARE @line varbinary(804);
    IF DATALENGTH(@key) > 0
        EXEC [dbo].[chanq__utf8] @key, @line OUTPUT;
    DECLARE @of varbinary(804) = ISNULL(@line, @id);
    DECLARE @hash bigint = CONVERT(bigint, 2166136261);
    DECLARE @i int = 1;
    WHILE @i <= DATALENGTH(@of)
    BEGIN
        SET @hash = (@hash ^ CONVERT(bigint, SUBSTRING(@of, @i, 1))) * 16777619 % CONVERT(bigint, 4294967296);
        SET @i = @i + 1;
    END;
    DECLARE @slots smallint = (SELECT s.slots FROM [dbo].[chanq__queues] AS s WITH (READCOMMITTEDLOCK) WHERE s.name = 'orders');
    DECLARE @gate nvarchar(255) = N'chanq senders of ' + CONVERT(nvarchar(11), CHECKSUM(N'dbo')) + N'.orders';
    DECLARE @granted int;
    DECLARE @number bigint;
    BEGIN TRANSACTION;
    EXEC @granted = sys.sp_getapplock @Resource = @gate, @LockMode = N'Shared', @LockOwner = N'Transaction', @LockTimeout = 10000;
    IF @granted < 0
    BEGIN
        THROW 51874, N'chanq: the application lock of senders was not granted within ten seconds', 1;
    END;
    SET @number = NEXT VALUE FOR [dbo].[chanq_orders__seq];
    INSERT INTO [dbo].[chanq_orders] WITH (ROWLOCK) (id, slot, seq, fence, due_at, enqueued_at, expires_at, order_key, dedup_key, [type], headers, body)
    VALUES (@id, CONVERT(smallint, @hash % @slots), @number * 1048576, @number * 1048576, @now, @now,
        DATEADD(millisecond, CONVERT(int, @ttl_ms % 86400000), DATEADD(day, CONVERT(int, @ttl_ms / 86400000), @now)), @line, @dedup, CASE WHEN DATALENGTH(@type) > 0 THEN CONVERT(varbinary(101), @type) END, CONVERT(varbinary(max), @headers), @body);
    EXEC @granted = sys.sp_releaseapplock @Resource = @gate, @LockOwner = N'Transaction';
    COMMIT TRANSACTION;
END;
