-- Article 002 (untitled, without an address): a queue of READPAST and OUTPUT.
create schema QueueSample authorization dbo
go
create table QueueSample.WorkQueue
(
WorkQueueID bigint not null identity(1,1) primary key clustered,
JobType uniqueidentifier not null,
JobInfo xml null,
CreatedDate datetime not null default(getdate()),
CreatedBy uniqueidentifier null,
ModifiedDate datetime null,
ModifiedBy uniqueidentifier null,
RetrievedDate datetime null,
RetrievedBy uniqueidentifier null
) on [primary]
go
create view QueueSample.WorkQueue_Pending
as
select *
from QueueSample.WorkQueue
where RetrievedDate is null
go
create proc QueueSample.ViewQueue
(
@JobType uniqueidentifier = null
)
-- pending jobs
as
begin
select JobType, JobInfo,
CreatedDate, CreatedBy,
ModifiedDate, ModifiedBy
from QueueSample.WorkQueue_Pending
where @JobType is null
or JobType = @JobType
end --proc
go
create proc QueueSample.QueueJob
(
@JobType uniqueidentifier,
@JobInfo xml = null,
@CreatedBy uniqueidentifier = null
)
-- one more job
as
begin
insert into QueueSample.WorkQueue
( JobType, JobInfo, CreatedBy )
output inserted.WorkQueueID
values ( @JobType, @JobInfo, @CreatedBy )
end --proc
go
create proc QueueSample.GetNextJob
(
@JobType uniqueidentifier,
@RetrievedBy uniqueidentifier = null
)
-- hand out a job
as
begin
update top(1) QueueSample.WorkQueue_Pending with (readpast)
set RetrievedDate = getdate(),
RetrievedBy = @RetrievedBy
output deleted.JobInfo,
deleted.CreatedBy,
deleted.CreatedDate,
deleted.ModifiedBy,
deleted.ModifiedDate,
inserted.RetrievedDate
where JobType = @JobType
end --proc
go
