-- @sent bigint, @acked bigint, @nacked bigint, @died bigint, @delivered bigint, @waited bigint, @ready int, @scheduled int, @leased int, @dead int, @oldest bigint
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET LOCK_TIMEOUT 100;
DECLARE @now bigint = DATEDIFF_BIG(millisecond, '19700101', SYSUTCDATETIME());
DECLARE @ten bigint = @now - @now % 10000;
DECLARE @minute bigint = @now - @now % 60000;
DECLARE @hour bigint = @now - @now % 3600000;
BEGIN TRANSACTION;
INSERT INTO [dbo].[chanq__samples] WITH (ROWLOCK) (queue, step, at, sent, acked, nacked, died, delivered, waited)
SELECT 'orders', p.step, p.at, 0, 0, 0, 0, 0, 0
FROM (VALUES (10, @ten), (60, @minute), (3600, @hour)) AS p (step, at)
WHERE NOT EXISTS (
    SELECT 1 FROM [dbo].[chanq__samples] AS h WITH (UPDLOCK, SERIALIZABLE, ROWLOCK)
    WHERE h.queue = 'orders' AND h.step = p.step AND h.at = p.at);
UPDATE h
SET sent = h.sent + @sent, acked = h.acked + @acked, nacked = h.nacked + @nacked, died = h.died + @died,
    delivered = h.delivered + @delivered, waited = h.waited + @waited,
    ready = CASE WHEN @ready > h.ready OR h.ready IS NULL THEN @ready ELSE h.ready END,
    scheduled = CASE WHEN @scheduled > h.scheduled OR h.scheduled IS NULL THEN @scheduled ELSE h.scheduled END,
    leased = CASE WHEN @leased > h.leased OR h.leased IS NULL THEN @leased ELSE h.leased END,
    dead = CASE WHEN @dead > h.dead OR h.dead IS NULL THEN @dead ELSE h.dead END,
    oldest = CASE WHEN @oldest > h.oldest OR h.oldest IS NULL THEN @oldest ELSE h.oldest END
FROM (VALUES (10, @ten), (60, @minute), (3600, @hour)) AS p (step, at)
INNER JOIN [dbo].[chanq__samples] AS h WITH (ROWLOCK, FORCESEEK) ON h.queue = 'orders' AND h.step = p.step AND h.at = p.at
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
SELECT h.step, CASE WHEN h.ready IS NULL THEN 0 ELSE 1 END AS counted
FROM [dbo].[chanq__samples] AS h
WHERE h.queue = 'orders' AND h.step = 10 AND h.at = @ten;
COMMIT TRANSACTION;
