package main

// cursorApplock walks a cursor over the pending messages, takes an application lock for each, marks
// it and returns the marked messages. It takes batches. A marked message is never redelivered: if a
// worker dies, its batch is lost. There is no index: the cursor sorts all pending messages for each
// take.
//
// The article's procedure runs in a transaction of its caller, which the application lock needs.
// Here that is the statement itself.
var cursorApplock = article{name: "cursor-applock", without: "redelivery: a crash loses the batch; an index", batches: true, on: map[string]articleMethod{
	"sqlserver": {
		make: []string{`CREATE TABLE {}_Message (
  MessageId uniqueidentifier NOT NULL,
  MessageBody varbinary(max) NOT NULL,
  EnqueueTime datetime NOT NULL,
  DequeueTime datetime NULL)`, `CREATE PROCEDURE {}_DequeueBatch (@BatchSize int) AS
DECLARE MessageCursor CURSOR FAST_FORWARD FOR
SELECT MessageId, MessageBody FROM {}_Message WITH (UPDLOCK ROWLOCK READPAST)
WHERE DequeueTime IS NULL ORDER BY EnqueueTime ASC;
DECLARE @MessageTable TABLE (MessageId uniqueidentifier NOT NULL, MessageBody varbinary(max) NOT NULL);
DECLARE @DequeueTime datetime, @InBatch int, @MessageId uniqueidentifier, @MessageBody varbinary(max);
SELECT @DequeueTime = GETUTCDATE(), @InBatch = 0;
OPEN MessageCursor;
WHILE @InBatch < @BatchSize
BEGIN
  FETCH NEXT FROM MessageCursor INTO @MessageId, @MessageBody;
  IF @@FETCH_STATUS = -2
    CONTINUE;
  ELSE IF @@FETCH_STATUS <> 0
    BREAK;
  DECLARE @LockStatus int;
  EXEC @LockStatus = sp_getapplock @MessageId, 'Exclusive', 'Transaction', 0;
  IF @LockStatus <> 0
    CONTINUE;
  INSERT INTO @MessageTable VALUES (@MessageId, @MessageBody);
  UPDATE {}_Message SET DequeueTime = @DequeueTime WHERE MessageId = @MessageId;
  SET @InBatch = @InBatch + 1;
END
CLOSE MessageCursor;
DEALLOCATE MessageCursor;
SELECT MessageId, MessageBody FROM @MessageTable;`},
		drop:    []string{`DROP PROCEDURE {}_DequeueBatch`, `DROP TABLE {}_Message`},
		enqueue: `INSERT INTO {}_Message (MessageId, MessageBody, EnqueueTime) VALUES (NEWID(), @p1, GETUTCDATE())`,
		take: func(s *articleSession, n int) (got int, err error) {
			err = s.inTx(func() error {
				ids, err := s.query(`EXEC {}_DequeueBatch @p1`, n)
				got = len(ids)
				return err
			})
			return got, err
		},
	},
	"postgres": {
		make: []string{`CREATE TABLE {}_message (
  message_id uuid NOT NULL,
  message_body bytea NOT NULL,
  enqueue_time timestamptz NOT NULL,
  dequeue_time timestamptz)`, `CREATE FUNCTION {}_dequeue_batch(batch_size integer) RETURNS TABLE (id uuid, body bytea) LANGUAGE plpgsql AS $$
DECLARE
  pending CURSOR FOR SELECT message_id, message_body FROM {}_message
    WHERE dequeue_time IS NULL ORDER BY enqueue_time FOR UPDATE SKIP LOCKED;
  in_batch integer := 0;
BEGIN
  OPEN pending;
  WHILE in_batch < batch_size LOOP
    FETCH pending INTO id, body;
    EXIT WHEN NOT FOUND;
    CONTINUE WHEN NOT pg_try_advisory_xact_lock(hashtextextended(id::text, 0));
    UPDATE {}_message SET dequeue_time = statement_timestamp() WHERE message_id = id;
    RETURN NEXT;
    in_batch := in_batch + 1;
  END LOOP;
  CLOSE pending;
END
$$`},
		enqueue: `INSERT INTO {}_message (message_id, message_body, enqueue_time) VALUES (gen_random_uuid(), $1, clock_timestamp())`,
		take: func(s *articleSession, n int) (int, error) {
			ids, err := s.query(`SELECT * FROM {}_dequeue_batch($1)`, n)
			return len(ids), err
		},
	},
}}
