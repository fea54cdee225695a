-- @holds bigint, @max_keys bigint, @max_attempts bigint, @max_body bigint, @retain_ms bigint, @retain_dead_ms bigint
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
UPDATE [dbo].[chanq__queues] WITH (ROWLOCK)
SET holds = @holds, max_keys = @max_keys, max_attempts = @max_attempts, max_body = @max_body, retain_ms = @retain_ms, retain_dead_ms = @retain_dead_ms
WHERE name = 'orders';
