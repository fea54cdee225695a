-- The minimum permissions for one queue, orders, in the schema public of PostgreSQL.
-- Replace the names by yours. Tests run this file as it is. They check that each role
-- has enough permissions, and which statements are rejected.

-- Part 1, before the first migration, run by the owner of the schema. The roles serve
-- all queues of the server. Grant them to the roles that your programs log in as.
CREATE ROLE chanq_migrator NOLOGIN;
CREATE ROLE chanq_producer NOLOGIN;
CREATE ROLE chanq_consumer NOLOGIN;
CREATE ROLE chanq_operator NOLOGIN;

-- The migrator creates and owns the tables: chanq migrate orders. So it can also drop the queue: chanq drop
-- reads chanq__tables, and deletes its rows from shared tables, such as chanq__queues and chanq__results.
GRANT USAGE, CREATE ON SCHEMA public TO chanq_migrator;
GRANT USAGE ON SCHEMA public TO chanq_producer, chanq_consumer, chanq_operator;

-- Part 2, after the migration, run by the migrator.

-- A producer inserts. It cannot read bodies or headers. The columns that it reads are
-- necessary: they show whether an INSERT of unknown outcome has stored its message, and
-- which message has a dedup key.
GRANT SELECT ON chanq__queues TO chanq_producer;
GRANT INSERT, SELECT (id, dedup_key, fence) ON chanq_orders TO chanq_producer;
GRANT SELECT, INSERT, UPDATE, DELETE ON chanq__samples TO chanq_producer; -- writes the history of the queue and deletes old samples; not necessary with HistoryOff

-- A consumer claims and settles. It can neither add messages nor change bodies. A stage
-- of a pipeline is a consumer of one queue and a producer of the next.
GRANT SELECT ON chanq__queues TO chanq_consumer;
GRANT SELECT, DELETE, UPDATE (due_at, lease_until, fence, attempts, lapses, leased_by, last_error, history) ON chanq_orders TO chanq_consumer;
GRANT SELECT, INSERT, UPDATE, DELETE ON chanq_orders__dead TO chanq_consumer; -- UPDATE: a message that ends again replaces its older copy, chanqjobs.Deaths; DELETE: Spec.RetainDead
GRANT SELECT, INSERT, UPDATE, DELETE ON chanq_orders__done TO chanq_consumer; -- with Spec.Retain
GRANT SELECT, INSERT, UPDATE, DELETE ON chanq__consumers TO chanq_consumer; -- its own row, and old rows of consumers that have ended
GRANT SELECT, INSERT, UPDATE, DELETE ON chanq__samples TO chanq_consumer; -- writes the history and deletes old samples
-- A consumer can vacuum the live table if its role is a member of chanq_migrator, the owner
-- of the table, or, from PostgreSQL 17 on, with the grant below. Otherwise dead rows stay
-- until autovacuum removes them.
-- GRANT MAINTAIN ON chanq_orders TO chanq_consumer

-- An operator lists, pauses, cancels, purges and redrives. UPDATE is necessary to lock
-- rows.
GRANT SELECT, UPDATE ON chanq__queues TO chanq_operator;
GRANT SELECT, DELETE ON chanq__consumers TO chanq_operator; -- DELETE: a consumer of an ordered queue whose leases are released
GRANT SELECT, INSERT, UPDATE ON chanq__samples TO chanq_operator; -- adds to the history while nothing else does; not necessary
GRANT SELECT, INSERT, UPDATE, DELETE ON chanq__log TO chanq_operator; -- the log of changes; DELETE: old ones
GRANT SELECT, INSERT, UPDATE, DELETE ON chanq_orders TO chanq_operator;
GRANT SELECT, UPDATE, DELETE ON chanq_orders__dead TO chanq_operator;
GRANT SELECT, UPDATE, DELETE ON chanq_orders__done TO chanq_operator;

-- Part 3, for an ordered queue. It has a sequence, and its slots are in a table that all
-- queues share. Part 2 also applies to its tables.
GRANT USAGE ON SEQUENCE chanq_orders__seq TO chanq_producer;
GRANT SELECT ON SEQUENCE chanq_orders__seq TO chanq_consumer; -- up to which number no further message can appear
GRANT SELECT, UPDATE (consumer, fence, old) ON chanq__slots TO chanq_consumer; -- which consumer owns which slots
GRANT SELECT ON chanq__slots TO chanq_operator;

-- Part 4, for schedules (package chanqcron), after the migrator has run chanqcron.Migrate, or
-- chanq schedule migrate. A program that runs them also is a producer of their queue.
GRANT SELECT ON chanq__tables TO chanq_producer, chanq_operator;
GRANT SELECT, INSERT, UPDATE ON chanq__schedules TO chanq_producer;
GRANT SELECT, UPDATE, DELETE ON chanq__schedules TO chanq_operator;

-- Part 5, for batches of jobs and Once (package chanqjobs), after the migrator has run
-- chanqjobs.Migrate, or chanq jobs migrate. A program that sends or runs them is
-- a producer of their queue.
GRANT SELECT ON chanq__tables TO chanq_producer, chanq_operator;
GRANT SELECT, INSERT, UPDATE, DELETE ON chanq__batches TO chanq_producer; -- DELETE: batches that were done 7 days ago
GRANT SELECT (id) ON chanq_orders__dead TO chanq_producer; -- how many jobs are dead
GRANT SELECT, INSERT, UPDATE, DELETE ON chanq__once TO chanq_producer; -- DELETE: rows whose period is over
GRANT SELECT ON chanq__batches TO chanq_operator;

-- Part 6, for results and progress of jobs (package chanqjobs), after the migrator has run
-- chanqjobs.Migrate, or chanq jobs migrate. A client that awaits results is
-- an operator.
GRANT SELECT ON chanq__tables TO chanq_consumer;
GRANT SELECT, INSERT, UPDATE, DELETE ON chanq__results TO chanq_consumer; -- DELETE: old ones
GRANT SELECT, INSERT, UPDATE, DELETE ON chanq__progress TO chanq_consumer;
GRANT SELECT ON chanq__results TO chanq_operator;
GRANT SELECT ON chanq__progress TO chanq_operator;

-- Part 7, for messages that are sent with an OnDuplicate other than KeepFirst. A producer can
-- then read and change messages: PostgreSQL wants SELECT for each column that ON CONFLICT sets.
GRANT SELECT (priority, due_at, enqueued_at, expires_at, leased_by, type, headers, body), UPDATE (priority, due_at, expires_at, fence, attempts, lapses, dedup_key, type, last_error, history, headers, body) ON chanq_orders TO chanq_producer;

-- Part 8, for topics (package chanqtopic), after the migrator has run chanqtopic.Migrate, or
-- chanq topic migrate. A program that publishes is a producer of each queue that subscribes.
GRANT SELECT ON chanq__tables TO chanq_producer, chanq_consumer, chanq_operator;
GRANT SELECT ON chanq__subscriptions TO chanq_producer;
GRANT SELECT, INSERT, UPDATE, DELETE ON chanq__subscriptions TO chanq_consumer; -- its program subscribes
GRANT SELECT, DELETE ON chanq__subscriptions TO chanq_operator;
