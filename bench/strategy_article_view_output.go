package main

// viewOutput updates the first row of a view of pending messages and returns it, in one statement.
// A retrieved message is never redelivered: if a worker dies, its message is lost. Rows stay in the
// table, which every take reads from the start.
var viewOutput = article{name: "view-output", without: "redelivery: a crash loses the message; an order", on: map[string]articleMethod{
	"sqlserver": {
		make: []string{`CREATE TABLE {}_WorkQueue (
  WorkQueueID bigint NOT NULL IDENTITY(1,1) PRIMARY KEY CLUSTERED,
  JobType uniqueidentifier NOT NULL,
  JobInfo varbinary(max) NULL,
  CreatedDate datetime NOT NULL DEFAULT(GETDATE()),
  RetrievedDate datetime NULL,
  RetrievedBy uniqueidentifier NULL)`,
			`CREATE VIEW {}_Pending AS SELECT * FROM {}_WorkQueue WHERE RetrievedDate IS NULL`},
		drop:    []string{`DROP VIEW {}_Pending`, `DROP TABLE {}_WorkQueue`},
		enqueue: `INSERT INTO {}_WorkQueue (JobType, JobInfo) VALUES ('AC351A46-49E4-4F0C-BF8C-F45255012150', @p1)`,
		take: takeFromView(`UPDATE TOP(1) {}_Pending WITH (READPAST)
SET RetrievedDate = GETDATE(), RetrievedBy = @p1
OUTPUT deleted.WorkQueueID, deleted.JobInfo
WHERE JobType = 'AC351A46-49E4-4F0C-BF8C-F45255012150'`),
	},
	"postgres": {
		make: []string{`CREATE TABLE {}_work_queue (
  work_queue_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  job_type uuid NOT NULL,
  job_info bytea,
  created_date timestamptz NOT NULL DEFAULT clock_timestamp(),
  retrieved_date timestamptz,
  retrieved_by uuid)`,
			`CREATE VIEW {}_pending AS SELECT * FROM {}_work_queue WHERE retrieved_date IS NULL`},
		enqueue: `INSERT INTO {}_work_queue (job_type, job_info) VALUES ('AC351A46-49E4-4F0C-BF8C-F45255012150', $1)`,
		take: takeFromView(`UPDATE {}_pending SET retrieved_date = clock_timestamp(), retrieved_by = $1
WHERE work_queue_id = (
  SELECT work_queue_id FROM {}_pending WHERE job_type = 'AC351A46-49E4-4F0C-BF8C-F45255012150' LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING work_queue_id, job_info`),
	},
}}

func takeFromView(take string) func(*articleSession, int) (int, error) {
	return func(s *articleSession, _ int) (int, error) {
		ids, err := s.query(take, s.worker.String())
		return len(ids), err
	}
}
