-- Article 000 (untitled, without an address): a work queue on SQL Server 2005 and 2008.
-- The alternative of SQL Server 2008.
UPDATE TOP(1)
work_queue WITH (READPAST)
SET
processed_flag = 1
OUTPUT
inserted.work_queue_id
WHERE
processed_flag = 0
