CREATE OR ALTER PROCEDURE [dbo].[chanq_orders__send]
    @text nvarchar(max) = NULL,
    @dedup_key nvarchar(201) = NULL,
    @headers nvarchar(max) = NULL,
    @priority smallint = 0,
    @delay_ms bigint = 0,
    @body varbinary(max) = NULL,
    @id binary(16) = NULL OUTPUT,
    @ttl_ms bigint = NULL,
    @type varchar(101) = NULL
AS
BEGIN
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
    SET @delay_ms = ISNULL(@delay_ms, 0);
    INSERT INTO [dbo].[chanq_orders] WITH (ROWLOCK) (id, priority, due_at, enqueued_at, expires_at, dedup_key, [type], headers, body)
    VALUES (@id, ISNULL(@priority, 0), DATEADD(millisecond, CONVERT(int, @delay_ms % 86400000), DATEADD(day, CONVERT(int, @delay_ms / 86400000), @now)), @now,
        DATEADD(millisecond, CONVERT(int, @ttl_ms % 86400000), DATEADD(day, CONVERT(int, @ttl_ms / 86400000), @now)), @dedup, CASE WHEN DATALENGTH(@type) > 0 THEN CONVERT(varbinary(101), @type) END, CONVERT(varbinary(max), @headers), @body);
END;
