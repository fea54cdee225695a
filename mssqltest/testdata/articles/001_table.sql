-- Article 001: Greg Beech, "Retrieving a row exactly once with multiple polling
-- processes in SQL Server", 11 June 2008.
CREATE TABLE Messaging.Message
(
    MessageId UNIQUEIDENTIFIER NOT NULL
    ,MessageBody VARBINARY(MAX) NOT NULL
    ,EnqueueTime DATETIME NOT NULL
    ,DequeueTime DATETIME NULL
);
