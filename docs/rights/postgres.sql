-- The least rights for one queue, orders, in the schema public of PostgreSQL.
-- Write your names in their place. Tests run this file as it is, and check that
-- each role suffices and what it is refused.

-- Part 1, before the first migration, by the owner of the schema. Roles are for
-- all queues of the server; grant them to the roles that your programs log in as.
CREATE ROLE chanq_migrator NOLOGIN;
CREATE ROLE chanq_producer NOLOGIN;
CREATE ROLE chanq_consumer NOLOGIN;
CREATE ROLE chanq_operator NOLOGIN;

-- The migrator makes the tables, and owns them: chanq migrate orders.
GRANT USAGE, CREATE ON SCHEMA public TO chanq_migrator;
GRANT USAGE ON SCHEMA public TO chanq_producer, chanq_consumer, chanq_operator;

-- Part 2, after the migration, by the migrator.

-- A producer inserts. It sees no body and no header: the columns that it reads
-- tell whether a message is there whose INSERT had an unknown outcome, and which
-- message has a dedup key. It cannot do without them.
GRANT SELECT ON chanq__queues TO chanq_producer;
GRANT INSERT, SELECT (id, dedup_key, fence) ON chanq_orders TO chanq_producer;
GRANT SELECT, INSERT, UPDATE, DELETE ON chanq__samples TO chanq_producer; -- the queue's history, and what is old of it; not with HistoryOff

-- A consumer claims and settles. It cannot add messages nor change bodies: a
-- stage of a pipeline is a consumer of one queue and a producer of the next.
GRANT SELECT ON chanq__queues TO chanq_consumer;
GRANT SELECT, DELETE, UPDATE (due_at, lease_until, fence, attempts, lapses, crashes, alone, leased_by, last_error) ON chanq_orders TO chanq_consumer;
GRANT SELECT, INSERT, UPDATE, DELETE ON chanq_orders__dead TO chanq_consumer; -- UPDATE: a message that ends again replaces its older copy; DELETE: Spec.RetainDead
GRANT SELECT, INSERT, UPDATE, DELETE ON chanq_orders__done TO chanq_consumer; -- with Spec.Retain
GRANT SELECT, INSERT, UPDATE, DELETE ON chanq__consumers TO chanq_consumer; -- its own row, and those of consumers that are long gone
GRANT SELECT, INSERT, UPDATE, DELETE ON chanq__samples TO chanq_consumer; -- likewise, and what is old of it
-- So that consumers vacuum the live table, which else waits for autovacuum, one of them is
-- a consumer of chanq_migrator, its owner, or from PostgreSQL 17 on has the right to:
-- GRANT MAINTAIN ON chanq_orders TO chanq_consumer

-- An operator looks, pauses, cancels, purges and redrives. UPDATE serves the
-- locks of rows.
GRANT SELECT, UPDATE ON chanq__queues TO chanq_operator;
GRANT SELECT ON chanq__consumers, chanq__samples TO chanq_operator;
GRANT SELECT, INSERT, UPDATE, DELETE ON chanq_orders TO chanq_operator;
GRANT SELECT, UPDATE, DELETE ON chanq_orders__dead TO chanq_operator;
GRANT SELECT, UPDATE, DELETE ON chanq_orders__done TO chanq_operator;

-- Part 3, for an ordered queue, which has a sequence beside its tables, and its slots in a
-- table of all queues. What part 2 says is for its tables, too.
GRANT USAGE ON SEQUENCE chanq_orders__seq TO chanq_producer;
GRANT SELECT ON SEQUENCE chanq_orders__seq TO chanq_consumer; -- up to where messages can appear no more
GRANT SELECT, UPDATE (consumer, fence, old) ON chanq__slots TO chanq_consumer; -- which slots are whose
GRANT SELECT ON chanq__slots TO chanq_operator;
