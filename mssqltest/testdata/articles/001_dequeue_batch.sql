-- Article 001: Greg Beech, "Retrieving a row exactly once with multiple polling
-- processes in SQL Server", 11 June 2008.
-- The article gives the procedure in four pieces.
CREATE PROCEDURE Messaging.Message_DequeueBatch
(
    @BatchSize INT
)
AS

DECLARE MessageCursor CURSOR FAST_FORWARD FOR
SELECT
    MessageId
    ,MessageBody
FROM
    Messaging.Message WITH (UPDLOCK ROWLOCK READPAST)
WHERE
    DequeueTime IS NULL
ORDER BY
    EnqueueTime ASC;

DECLARE @MessageTable TABLE
(
    MessageId UNIQUEIDENTIFIER NOT NULL
    ,MessageBody VARBINARY(MAX) NOT NULL
);

DECLARE 
    @DequeueTime DATETIME
    ,@InBatch INT
    ,@MessageId UNIQUEIDENTIFIER
    ,@MessageBody VARBINARY(MAX);

SELECT
    @DequeueTime = GETUTCDATE()
    ,@InBatch = 0;

OPEN MessageCursor;
WHILE @InBatch < @BatchSize
BEGIN

    FETCH NEXT FROM MessageCursor INTO @MessageId, @MessageBody;
    IF @@FETCH_STATUS = -2
        CONTINUE;
    ELSE IF @@FETCH_STATUS <> 0
        BREAK;

    DECLARE @LockStatus INT;
    EXEC @LockStatus = sp_getapplock @MessageId, 'Exclusive', 'Transaction', 0;
    IF @LockStatus <> 0
        CONTINUE;
    
    INSERT INTO @MessageTable VALUES (@MessageId, @MessageBody);

    UPDATE Messaging.Message
    SET DequeueTime = @DequeueTime
    WHERE MessageId = @MessageId;

    SET @InBatch = @InBatch + 1;
END
CLOSE MessageCursor;
DEALLOCATE MessageCursor;

SELECT
    MessageId
    ,MessageBody
FROM
    @MessageTable;
