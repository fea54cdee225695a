package main

// updlockReadpast selects one row with hints, works on it within the transaction and then sets its
// flag. If a worker dies, its lock is released and the row is taken again. But the transaction, its
// lock and its connection last as long as the work. Rows stay in the table, which every take reads
// from the start.
var updlockReadpast = article{name: "updlock-readpast", without: "leases: a transaction is open during the work; counted attempts", on: map[string]articleMethod{
	"sqlserver": {
		make: []string{`CREATE TABLE {}_work_queue (
  work_queue_id int IDENTITY(1,1) NOT NULL,
  body varbinary(max) NOT NULL,
  processed_flag bit NOT NULL,
  CONSTRAINT PK_{}_work_queue PRIMARY KEY CLUSTERED (work_queue_id ASC))`},
		drop:    []string{`DROP TABLE {}_work_queue`},
		enqueue: `INSERT INTO {}_work_queue (body, processed_flag) VALUES (@p1, 0)`,
		take: takeUnderLock(
			`SELECT TOP(1) work_queue_id, body FROM {}_work_queue WITH (UPDLOCK, READPAST) WHERE processed_flag = 0`,
			`UPDATE {}_work_queue SET processed_flag = 1 WHERE work_queue_id = @p1`),
	},
	"postgres": {
		make: []string{`CREATE TABLE {}_work_queue (
  work_queue_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  body bytea NOT NULL,
  processed_flag boolean NOT NULL)`},
		enqueue: `INSERT INTO {}_work_queue (body, processed_flag) VALUES ($1, false)`,
		take: takeUnderLock(
			`SELECT work_queue_id, body FROM {}_work_queue WHERE NOT processed_flag LIMIT 1 FOR UPDATE SKIP LOCKED`,
			`UPDATE {}_work_queue SET processed_flag = true WHERE work_queue_id = $1`),
	},
}}

func takeUnderLock(take, finish string) func(*articleSession, int) (int, error) {
	return func(s *articleSession, _ int) (got int, err error) {
		err = s.inTx(func() error {
			ids, err := s.query(take)
			if got = len(ids); err != nil || got == 0 {
				return err
			}
			return s.exec(finish, ids[0])
		})
		return got, err
	}
}
