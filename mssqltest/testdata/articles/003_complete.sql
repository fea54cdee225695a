-- Article 003: "A Poor Man's Queue", 10 January 2019.
CREATE PROCEDURE CompleteMessage
	@id INT
AS
BEGIN
	DELETE FROM [Queue] WHERE [Status] = 2 AND [Id] = @id
END
