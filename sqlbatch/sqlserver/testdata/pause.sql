-- @paused_by nvarchar(400), @reason nvarchar(400)
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
UPDATE [dbo].[chanq__queues] WITH (ROWLOCK)
SET paused = 1, paused_at = SYSUTCDATETIME(), paused_by = @paused_by, pause_reason = @reason
WHERE name = 'orders';
