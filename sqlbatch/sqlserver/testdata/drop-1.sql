SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
DELETE m
FROM [dbo].[chanq_members] AS m WITH (ROWLOCK)
WHERE m.queue = 'orders';
DELETE h
FROM [dbo].[chanq_samples] AS h WITH (ROWLOCK)
WHERE h.queue = 'orders';
DELETE s
FROM [dbo].[chanq_queues] AS s WITH (ROWLOCK)
WHERE s.name = 'orders';
DROP VIEW IF EXISTS [dbo].[chanq_orders_messages];
DROP PROCEDURE IF EXISTS [dbo].[chanq_orders_send];
DROP TABLE [dbo].[chanq_orders];
DROP TABLE [dbo].[chanq_orders_dead];
DROP TABLE [dbo].[chanq_orders_done];
