SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT version, CONVERT(int, paused) AS paused
FROM [dbo].[chanq_queues]
WHERE name = 'orders';
