package main

import "github.com/google/uuid"

// guidMarker marks rows with a new GUID and then selects the marked rows. It takes batches, and
// unlike the others has a timeout: after 15 minutes work is redelivered, at most three times. But
// the timeout is not fenced, so a late worker ends the work of the next one. Rows stay in the
// table, whose only index is the primary key, so each take reads and sorts all pending messages.
var guidMarker = article{name: "guid-marker", without: "fences: a late worker ends the work of the next one; an index", batches: true, on: map[string]articleMethod{
	"sqlserver": {
		make: []string{`CREATE TABLE {}_Job_Queue (
  ID bigint IDENTITY(1,1) NOT NULL,
  Priority tinyint NOT NULL DEFAULT ((255)),
  Available_Date datetime NOT NULL DEFAULT (GETDATE()),
  Timeout_Date datetime NULL,
  Attempts int NOT NULL DEFAULT ((0)),
  Processing_Mark uniqueidentifier NULL,
  Processing_Server varchar(50) NULL,
  Last_Attempt_Start_Date datetime NULL,
  Last_Attempt_End_Date datetime NULL,
  Payload varbinary(max) NOT NULL,
  CONSTRAINT PK_{}_Job_Queue PRIMARY KEY CLUSTERED (ID ASC))`, `CREATE PROCEDURE {}_Get_Job @sProcessingServer varchar(50), @nWorkCount int = 1 AS
BEGIN
  SET NOCOUNT ON;
  DECLARE @xGUID uniqueidentifier
  SET @xGUID = NEWID()
  UPDATE jq SET Processing_Mark = @xGUID, Processing_Server = @sProcessingServer, Attempts = Attempts + 1,
    Last_Attempt_Start_Date = GETDATE(), Timeout_Date = DATEADD (mi, 15, GETDATE())
  FROM {}_Job_Queue AS jq WITH (UPDLOCK)
  INNER JOIN (
    SELECT TOP (@nWorkCount) ID FROM {}_Job_Queue WITH (READPAST)
    WHERE (Processing_Mark IS NULL AND Attempts = 0 AND Available_Date <= GETDATE())
      OR (ISNULL(Last_Attempt_End_Date, '1/1/2000') < Last_Attempt_Start_Date
        AND ISNULL (Timeout_Date, Available_Date) <= GETDATE() AND Attempts < 3)
    ORDER BY Priority ASC, Available_Date ASC
  ) AS jqs ON jq.ID = jqs.ID
  WHERE (jq.Processing_Mark IS NULL AND jq.Attempts = 0 AND jq.Available_Date <= GETDATE())
    OR (ISNULL(jq.Last_Attempt_End_Date, '1/1/2000') < jq.Last_Attempt_Start_Date
      AND ISNULL (jq.Timeout_Date, jq.Available_Date) <= GETDATE() AND jq.Attempts < 3)
  SELECT ID, Payload FROM {}_Job_Queue WHERE Processing_Mark = @xGUID
END`},
		drop:    []string{`DROP PROCEDURE {}_Get_Job`, `DROP TABLE {}_Job_Queue`},
		enqueue: `INSERT INTO {}_Job_Queue (Payload) VALUES (@p1)`,
		take: func(s *articleSession, n int) (int, error) {
			ids, err := s.query(`EXEC {}_Get_Job 'bench', @p1`, n)
			return s.finishEach(ids, err, `UPDATE {}_Job_Queue SET Last_Attempt_End_Date = GETDATE() WHERE ID = @p1`)
		},
	},
	"postgres": {
		make: []string{`CREATE TABLE {}_job_queue (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  priority smallint NOT NULL DEFAULT 255,
  available_date timestamptz NOT NULL DEFAULT clock_timestamp(),
  timeout_date timestamptz,
  attempts integer NOT NULL DEFAULT 0,
  processing_mark uuid,
  processing_server text,
  last_attempt_start_date timestamptz,
  last_attempt_end_date timestamptz,
  payload bytea NOT NULL)`, `CREATE FUNCTION {}_get_job(mark uuid, server text, work_count integer) RETURNS TABLE (job bigint, body bytea) LANGUAGE plpgsql AS $$
BEGIN
  UPDATE {}_job_queue AS q SET processing_mark = mark, processing_server = server, attempts = q.attempts + 1,
    last_attempt_start_date = statement_timestamp(), timeout_date = statement_timestamp() + interval '15 minutes'
  FROM (
    SELECT id FROM {}_job_queue
    WHERE (processing_mark IS NULL AND attempts = 0 AND available_date <= statement_timestamp())
      OR (coalesce(last_attempt_end_date, '2000-01-01') < last_attempt_start_date
        AND coalesce(timeout_date, available_date) <= statement_timestamp() AND attempts < 3)
    ORDER BY priority, available_date LIMIT work_count FOR UPDATE SKIP LOCKED
  ) AS s WHERE q.id = s.id;
  RETURN QUERY SELECT id, payload FROM {}_job_queue WHERE processing_mark = mark;
END
$$`},
		enqueue: `INSERT INTO {}_job_queue (payload) VALUES ($1)`,
		take: func(s *articleSession, n int) (int, error) {
			ids, err := s.query(`SELECT * FROM {}_get_job($1, 'bench', $2)`, uuid.NewString(), n)
			return s.finishEach(ids, err, `UPDATE {}_job_queue SET last_attempt_end_date = clock_timestamp() WHERE id = $1`)
		},
	},
}}

// finishEach marks the taken messages as done, one by one as the article's workers do.
func (s *articleSession) finishEach(ids []any, err error, text string) (int, error) {
	for _, id := range ids {
		if err == nil {
			err = s.exec(text, id)
		}
	}
	return len(ids), err
}
