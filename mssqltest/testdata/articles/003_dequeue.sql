-- Article 003: "A Poor Man's Queue", 10 January 2019.
CREATE PROCEDURE DequeueMessage
AS
BEGIN
	;WITH NextMessage AS
	(
		SELECT TOP 1 *
		FROM [Queue] WITH (ROWLOCK READPAST)
		WHERE [Status] = 1
		ORDER BY Id
	)
	UPDATE NextMessage
	SET [Status] = 2
	OUTPUT
		inserted.[Id],
		inserted.[Message]
END
