-- Article 002 (untitled, without an address): a queue of READPAST and OUTPUT.
-- Its end.
drop proc QueueSample.ViewQueue
drop proc QueueSample.GetNextJob
drop proc QueueSample.QueueJob
drop view QueueSample.WorkQueue_Pending
drop table QueueSample.WorkQueue
drop schema QueueSample
go
