-- @sent bigint, @acked bigint, @nacked bigint, @died bigint, @delivered bigint, @ready int, @scheduled int, @leased int, @dead int, @oldest bigint, @times0 bigint, @times1 bigint, @times2 bigint, @times3 bigint, @times4 bigint, @times5 bigint, @times6 bigint, @times7 bigint, @times8 bigint, @times9 bigint, @times10 bigint, @times11 bigint, @times12 bigint, @times13 bigint, @times14 bigint, @times15 bigint, @times16 bigint, @times17 bigint, @times18 bigint, @times19 bigint, @times20 bigint, @times21 bigint, @times22 bigint, @times23 bigint, @times24 bigint, @times25 bigint, @times26 bigint, @times27 bigint, @times28 bigint, @times29 bigint
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
SET LOCK_TIMEOUT 100;
DECLARE @now bigint = DATEDIFF_BIG(millisecond, '19700101', SYSUTCDATETIME());
DECLARE @ten bigint = @now - @now % 10000;
DECLARE @minute bigint = @now - @now % 60000;
DECLARE @hour bigint = @now - @now % 3600000;
BEGIN TRANSACTION;
INSERT INTO [dbo].[chanq__samples] WITH (ROWLOCK) (queue, step, at, sent, acked, nacked, died, delivered, times0, times1, times2, times3, times4, times5, times6, times7, times8, times9, times10, times11, times12, times13, times14, times15, times16, times17, times18, times19, times20, times21, times22, times23, times24, times25, times26, times27, times28, times29)
SELECT 'orders', p.step, p.at, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
FROM (VALUES (10, @ten), (60, @minute), (3600, @hour)) AS p (step, at)
WHERE NOT EXISTS (
    SELECT 1 FROM [dbo].[chanq__samples] AS h WITH (UPDLOCK, SERIALIZABLE, ROWLOCK)
    WHERE h.queue = 'orders' AND h.step = p.step AND h.at = p.at);
UPDATE h
SET sent = h.sent + @sent, acked = h.acked + @acked, nacked = h.nacked + @nacked, died = h.died + @died,
    delivered = h.delivered + @delivered,
    times0 = h.times0 + @times0, times1 = h.times1 + @times1, times2 = h.times2 + @times2, times3 = h.times3 + @times3, times4 = h.times4 + @times4, times5 = h.times5 + @times5, times6 = h.times6 + @times6, times7 = h.times7 + @times7, times8 = h.times8 + @times8, times9 = h.times9 + @times9, times10 = h.times10 + @times10, times11 = h.times11 + @times11, times12 = h.times12 + @times12, times13 = h.times13 + @times13, times14 = h.times14 + @times14, times15 = h.times15 + @times15, times16 = h.times16 + @times16, times17 = h.times17 + @times17, times18 = h.times18 + @times18, times19 = h.times19 + @times19, times20 = h.times20 + @times20, times21 = h.times21 + @times21, times22 = h.times22 + @times22, times23 = h.times23 + @times23, times24 = h.times24 + @times24, times25 = h.times25 + @times25, times26 = h.times26 + @times26, times27 = h.times27 + @times27, times28 = h.times28 + @times28, times29 = h.times29 + @times29,
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
