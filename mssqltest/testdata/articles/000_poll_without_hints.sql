-- Article 000 (untitled, without an address): a work queue on SQL Server 2005 and 2008.
-- The poll that hands out one item twice.
DECLARE @work_queue_id int, @name varchar(255)
BEGIN TRANSACTION -- take one
SELECT TOP(1)
@work_queue_id = work_queue_id, @name = name
FROM
work_queue
WHERE processed_flag = 0 PRINT 'Processing ' + @name + ', work_queue_id = ' + CONVERT(varchar, @work_queue_id) -- while
WAITFOR DELAY '00:00:15' -- done with it
UPDATE work_queue SET processed_flag = 1 WHERE work_queue_id = @work_queue_id COMMIT
