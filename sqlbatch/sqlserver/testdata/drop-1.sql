SET NOCOUNT, XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
DELETE m
FROM [dbo].[chanq__consumers] AS m WITH (ROWLOCK)
WHERE m.queue = 'orders';
DELETE h
FROM [dbo].[chanq__samples] AS h WITH (ROWLOCK)
WHERE h.queue = 'orders';
DELETE s
FROM [dbo].[chanq__queues] AS s WITH (ROWLOCK)
WHERE s.name = 'orders';
DROP VIEW IF EXISTS [dbo].[chanq_orders__messages];
DROP PROCEDURE IF EXISTS [dbo].[chanq_orders__send];
DROP TABLE [dbo].[chanq_orders];
DROP TABLE [dbo].[chanq_orders__dead];
DROP TABLE [dbo].[chanq_orders__done];
