-- Article 004: "Anti-Collision Work Queue Retrieval: an approach using GUIDs",
-- https://blog.bitsofgenius.com/?p=12, 30 September 2008.
-- The article alters the procedure, so there must be one before.
SET ANSI_NULLS ON
GO

SET QUOTED_IDENTIFIER ON
GO

ALTER PROCEDURE [dbo].[usp_API_Get_Job]

	@sProcessingServer VARCHAR(50),
	@nWorkCount INT = 1

AS

BEGIN
	SET NOCOUNT ON;

	DECLARE @xGUID UNIQUEIDENTIFIER

	SET @xGUID = NEWID()

	UPDATE jq SET
		Processing_Mark = @xGUID,
		Processing_Server = @sProcessingServer,
		Attempts = Attempts + 1,
		Last_Attempt_Start_Date = GETDATE(),
		Timeout_Date = DATEADD (mi, 15, GETDATE())
	FROM Job_Queue AS jq WITH (UPDLOCK)
	INNER JOIN (
		SELECT TOP (@nWorkCount) ID
		FROM Job_Queue WITH (READPAST)
		WHERE
		(Processing_Mark IS NULL AND Attempts = 0 AND Available_Date <= GETDATE())
		OR (
			ISNULL(Last_Attempt_End_Date, '1/1/2000') < Last_Attempt_Start_Date
			AND ISNULL (Timeout_Date, Available_Date) <= GETDATE()
			AND Attempts < 3
		)
		ORDER BY Priority ASC, Available_Date ASC
	) AS jqs
	ON jq.ID = jqs.ID
	WHERE
	(jq.Processing_Mark IS NULL AND jq.Attempts = 0 AND jq.Available_Date <= GETDATE())
	OR (
		ISNULL(jq.Last_Attempt_End_Date, '1/1/2000') < jq.Last_Attempt_Start_Date
		AND ISNULL (jq.Timeout_Date, jq.Available_Date) <= GETDATE()
		AND jq.Attempts < 3
	)

	SELECT ID, Payload
	FROM Job_Queue
	WHERE Processing_Mark = @xGUID
END
