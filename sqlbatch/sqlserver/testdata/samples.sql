-- @since bigint, @step int
SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
SELECT h.at, h.ready, h.scheduled, h.leased, h.dead, h.oldest, h.sent, h.acked, h.nacked, h.died, h.delivered,
    h.times0, h.times1, h.times2, h.times3, h.times4, h.times5, h.times6, h.times7, h.times8, h.times9, h.times10, h.times11, h.times12, h.times13, h.times14, h.times15, h.times16, h.times17, h.times18, h.times19, h.times20, h.times21, h.times22, h.times23, h.times24, h.times25, h.times26, h.times27, h.times28, h.times29
FROM [dbo].[chanq__samples] AS h
WHERE h.queue = 'orders' AND h.step = @step AND h.at >= @since
ORDER BY h.at;
