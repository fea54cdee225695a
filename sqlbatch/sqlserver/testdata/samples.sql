-- @since bigint, @step int
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
SELECT h.at, h.ready, h.scheduled, h.leased, h.dead, h.oldest, h.sent, h.acked, h.nacked, h.died, h.delivered, h.waited
FROM [dbo].[chanq__samples] AS h
WHERE h.queue = 'orders' AND h.step = @step AND h.at >= @since
ORDER BY h.at;
