-- Article 003: "A Poor Man's Queue", 10 January 2019.
CREATE PROCEDURE EnqueueMessage
	@message VARBINARY(MAX)
AS
BEGIN
	INSERT INTO [Queue] ([Status], [Message])
	VALUES (1, @message)
END
