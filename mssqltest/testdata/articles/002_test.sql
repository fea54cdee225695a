-- Article 002 (untitled, without an address): a queue of READPAST and OUTPUT.
-- Its test, one batch.
declare @JobType_1 uniqueidentifier = 'AC351A46-49E4-4F0C-BF8C-F45255012150',
@JobType_2 uniqueidentifier = 'FB0F15E0-2A97-46A3-951B-6655E4D7A06A'
exec QueueSample.QueueJob @JobType_1, '<info><key>4</key></info>'
exec QueueSample.QueueJob @JobType_1, '<info><key>5</key></info>'
exec QueueSample.QueueJob @JobType_2, '<info><anotherkey>422</anotherkey></info>'
exec QueueSample.QueueJob @JobType_1, '<info><key>6</key></info>'
exec QueueSample.QueueJob @JobType_2, '<info><anotherkey>893</anotherkey></info>'
exec QueueSample.QueueJob @JobType_1, '<info><key>8</key></info>'
exec QueueSample.ViewQueue
exec QueueSample.ViewQueue @JobType_1
exec QueueSample.GetNextJob @JobType_1
exec QueueSample.ViewQueue @JobType_1
exec QueueSample.ViewQueue @JobType_2
exec QueueSample.GetNextJob @JobType_2
exec QueueSample.ViewQueue @JobType_2
exec QueueSample.ViewQueue
go
