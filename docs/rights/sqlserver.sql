-- The least rights for one queue, orders, in the schema dbo of SQL Server. Write
-- your names in their place. Tests run this file as it is, and check that each
-- role suffices and what it is refused.

-- Part 1, before the first migration, by a consumer of db_owner. Roles are for all
-- queues of the database.
CREATE ROLE chanq_migrator;
CREATE ROLE chanq_producer;
CREATE ROLE chanq_consumer;
CREATE ROLE chanq_operator;

-- The migrator makes the tables: chanq migrate orders. An ordered queue has a sequence, which
-- a default of its table refers to: that is what REFERENCES is for.
GRANT CREATE TABLE TO chanq_migrator;
GRANT ALTER, SELECT, INSERT, UPDATE, REFERENCES ON SCHEMA::dbo TO chanq_migrator;

-- Part 2, after the migration.

-- A producer inserts. It sees no body and no header, and not who has a message:
-- the columns that it reads tell whether a message is there whose INSERT had an
-- unknown outcome, and which message has a dedup key. It cannot do without them.
GRANT SELECT ON dbo.chanq__queues TO chanq_producer;
GRANT INSERT ON dbo.chanq_orders TO chanq_producer;
GRANT SELECT ON dbo.chanq_orders (id, dedup_key, fence) TO chanq_producer;
GRANT SELECT, INSERT, UPDATE, DELETE ON dbo.chanq__samples TO chanq_producer; -- the queue's history, and what is old of it; not with HistoryOff

-- A consumer claims and settles, and says that it is there. It cannot add messages: a stage of a pipeline is
-- a consumer of one queue and a producer of the next.
GRANT SELECT ON dbo.chanq__queues TO chanq_consumer;
GRANT SELECT, UPDATE, DELETE ON dbo.chanq_orders TO chanq_consumer;
GRANT SELECT, INSERT, DELETE ON dbo.chanq_orders__dead TO chanq_consumer;
GRANT SELECT, INSERT, DELETE ON dbo.chanq_orders__done TO chanq_consumer; -- with Spec.Retain
GRANT SELECT, INSERT, UPDATE, DELETE ON dbo.chanq__consumers TO chanq_consumer;
GRANT SELECT, INSERT, UPDATE, DELETE ON dbo.chanq__samples TO chanq_consumer; -- the history, and what is old of it

-- An operator looks, pauses, cancels, purges and redrives.
GRANT SELECT, UPDATE ON dbo.chanq__queues TO chanq_operator;
GRANT SELECT ON dbo.chanq__consumers TO chanq_operator;
GRANT SELECT ON dbo.chanq__samples TO chanq_operator;
GRANT SELECT, INSERT, UPDATE, DELETE ON dbo.chanq_orders TO chanq_operator;
GRANT SELECT, DELETE ON dbo.chanq_orders__dead TO chanq_operator;
GRANT SELECT, DELETE ON dbo.chanq_orders__done TO chanq_operator;

-- Part 3, for an ordered queue, which has its sequence beside its tables, and its slots in a table of
-- all queues. What part 2 says is for its tables, too.
GRANT UPDATE ON dbo.chanq_orders__seq TO chanq_producer; -- draws numbers
GRANT VIEW DEFINITION ON dbo.chanq_orders__seq TO chanq_consumer; -- asks how far they were drawn
GRANT SELECT, UPDATE ON dbo.chanq__slots TO chanq_consumer; -- which slots are whose
GRANT SELECT ON dbo.chanq__slots TO chanq_operator;
