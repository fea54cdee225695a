-- The minimum permissions for one queue, orders, in the schema dbo of SQL Server.
-- Replace the names by yours. Tests run this file as it is. They check that each role
-- has enough permissions, and which statements are rejected.

-- Part 1, before the first migration, run by a member of db_owner. The roles serve all
-- queues of the database.
CREATE ROLE chanq_migrator;
CREATE ROLE chanq_producer;
CREATE ROLE chanq_consumer;
CREATE ROLE chanq_operator;

-- The migrator creates the tables: chanq migrate orders. REFERENCES is for ordered queues:
-- a default of their table refers to a sequence.
GRANT CREATE TABLE TO chanq_migrator;
GRANT ALTER, SELECT, INSERT, UPDATE, REFERENCES ON SCHEMA::dbo TO chanq_migrator;

-- Part 2, after the migration.

-- A producer inserts. It cannot read bodies, headers or leases. The columns that it
-- reads are necessary: they show whether an INSERT of unknown outcome has stored its
-- message, and which message has a dedup key.
GRANT SELECT ON dbo.chanq__queues TO chanq_producer;
GRANT INSERT ON dbo.chanq_orders TO chanq_producer;
GRANT SELECT ON dbo.chanq_orders (id, dedup_key, fence) TO chanq_producer;
GRANT SELECT, INSERT, UPDATE, DELETE ON dbo.chanq__samples TO chanq_producer; -- writes the history of the queue and deletes old samples; not necessary with HistoryOff

-- A consumer claims, settles and writes its own row of the consumers. It cannot add messages. A stage of a
-- pipeline is a consumer of one queue and a producer of the next.
GRANT SELECT ON dbo.chanq__queues TO chanq_consumer;
GRANT SELECT, UPDATE, DELETE ON dbo.chanq_orders TO chanq_consumer;
GRANT SELECT, INSERT, UPDATE, DELETE ON dbo.chanq_orders__dead TO chanq_consumer; -- UPDATE: chanqjobs.Deaths
GRANT SELECT, INSERT, DELETE ON dbo.chanq_orders__done TO chanq_consumer; -- with Spec.Retain
GRANT SELECT, INSERT, UPDATE, DELETE ON dbo.chanq__consumers TO chanq_consumer;
GRANT SELECT, INSERT, UPDATE, DELETE ON dbo.chanq__samples TO chanq_consumer; -- writes the history and deletes old samples

-- An operator lists, pauses, cancels, purges and redrives.
GRANT SELECT, UPDATE ON dbo.chanq__queues TO chanq_operator;
GRANT SELECT, DELETE ON dbo.chanq__consumers TO chanq_operator; -- DELETE: a consumer of an ordered queue whose leases are released
GRANT SELECT, INSERT, UPDATE ON dbo.chanq__samples TO chanq_operator; -- adds to the history while nothing else does; not necessary
GRANT SELECT, INSERT, UPDATE, DELETE ON dbo.chanq__log TO chanq_operator; -- the log of changes; DELETE: old ones
GRANT SELECT, INSERT, UPDATE, DELETE ON dbo.chanq_orders TO chanq_operator;
GRANT SELECT, DELETE ON dbo.chanq_orders__dead TO chanq_operator;
GRANT SELECT, DELETE ON dbo.chanq_orders__done TO chanq_operator;

-- Part 3, for an ordered queue. It has a sequence, and its slots are in a table that all queues share.
-- Part 2 also applies to its tables.
GRANT UPDATE ON dbo.chanq_orders__seq TO chanq_producer; -- draws numbers
GRANT VIEW DEFINITION ON dbo.chanq_orders__seq TO chanq_consumer; -- reads which numbers were drawn
GRANT SELECT, UPDATE ON dbo.chanq__slots TO chanq_consumer; -- which consumer owns which slots
GRANT SELECT ON dbo.chanq__slots TO chanq_operator;

-- Part 4, for schedules (package chanqcron), after the migrator has run chanqcron.Migrate, or
-- chanq schedule migrate. A program that runs them also is a producer of their queue.
GRANT SELECT ON dbo.chanq__tables TO chanq_producer, chanq_operator;
GRANT SELECT, INSERT, UPDATE ON dbo.chanq__schedules TO chanq_producer;
GRANT SELECT, UPDATE, DELETE ON dbo.chanq__schedules TO chanq_operator;

-- Part 5, for batches of jobs and Once (package chanqjobs), after the migrator has run
-- chanqjobs.Migrate, or chanq jobs migrate. A program that sends or runs them is a producer of their queue.
GRANT SELECT ON dbo.chanq__tables TO chanq_producer, chanq_operator;
GRANT SELECT, INSERT, UPDATE, DELETE ON dbo.chanq__batches TO chanq_producer; -- DELETE: batches that were done 7 days ago
GRANT SELECT ON dbo.chanq_orders__dead TO chanq_producer; -- how many jobs are dead
GRANT SELECT, INSERT, UPDATE, DELETE ON dbo.chanq__once TO chanq_producer; -- DELETE: rows whose period is over
GRANT SELECT ON dbo.chanq__batches TO chanq_operator;

-- Part 6, for results and progress of jobs (package chanqjobs), after the migrator has run
-- chanqjobs.Migrate, or chanq jobs migrate. A client that awaits results is
-- an operator.
GRANT SELECT ON dbo.chanq__tables TO chanq_consumer;
GRANT SELECT, INSERT, UPDATE, DELETE ON dbo.chanq__results TO chanq_consumer; -- DELETE: old ones
GRANT SELECT, INSERT, UPDATE, DELETE ON dbo.chanq__progress TO chanq_consumer;
GRANT SELECT ON dbo.chanq__results TO chanq_operator;
GRANT SELECT ON dbo.chanq__progress TO chanq_operator;

-- Part 7, for messages that are sent with an OnDuplicate other than KeepFirst. A producer can
-- then change messages, and still not read their bodies.
GRANT SELECT ON dbo.chanq_orders (priority, due_at, enqueued_at, expires_at, leased_by) TO chanq_producer;
GRANT UPDATE ON dbo.chanq_orders TO chanq_producer;

-- Part 8, for topics (package chanqtopic), after the migrator has run chanqtopic.Migrate, or
-- chanq topic migrate. A program that publishes is a producer of each queue that subscribes.
GRANT SELECT ON dbo.chanq__tables TO chanq_producer, chanq_consumer, chanq_operator;
GRANT SELECT ON dbo.chanq__subscriptions TO chanq_producer;
GRANT SELECT, INSERT, UPDATE, DELETE ON dbo.chanq__subscriptions TO chanq_consumer; -- its program subscribes
GRANT SELECT, DELETE ON dbo.chanq__subscriptions TO chanq_operator;

-- Part 9, if the migrator also drops queues: chanq drop reads chanq__tables, and deletes the rows of the
-- queue from shared tables, such as chanq__queues and chanq__results.
GRANT DELETE ON SCHEMA::dbo TO chanq_migrator;
