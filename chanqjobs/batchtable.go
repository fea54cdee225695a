package chanqjobs

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/chanq/chanq"
)

// The table of batches, and its statements.

// batchTables has a row for each batch. Times are Unix milliseconds, and done_at is 0 while a batch is open. The jobs of
// a batch are those with IDs above id, up to last. The index of the UNIQUE constraint leads to the open batches of
// a queue, and to those that are trimmed.
var batchTables = chanq.Tables{Name: "batches", Version: 1, MinVersion: 1, Create: func(d chanq.Dialect, _ int) []string {
	id := map[chanq.Dialect]string{chanq.DialectPostgres: "uuid", chanq.DialectSQLServer: "binary(16)"}[d]
	return []string{strings.ReplaceAll(`{create chanq__batches} (
  id      {id} NOT NULL PRIMARY KEY,
  last    {id} NOT NULL,
  queue   {text} NOT NULL,
  sent    integer NOT NULL,
  done    {bytes} NOT NULL,
  made_at bigint NOT NULL,
  done_at bigint NOT NULL,
  UNIQUE (queue, done_at, id)
)`, "{id}", cmp.Or(id, "BLOB"))}
}}

// batchNames returns the names for statements on an existing table.
func batchNames(ctx context.Context, db *sql.DB, cfg chanq.Config) (chanq.Names, error) {
	existing := batchTables
	existing.Create = nil
	names, err := chanq.MigrateTables(ctx, db, cfg, existing)
	return names, howToMigrate(err)
}

// The statements. The words in braces that are not of Names.SQL differ per database: see batchText.
const (
	// batchAddText adds nothing if the batch is stored already. It waits for a transaction that has stored it.
	batchAddText = `INSERT INTO {chanq__batches} (id, last, queue, sent, done, made_at, done_at){output id}
SELECT ?1, ?2, ?3, ?4, ?5, {now}, ?6 * {now} WHERE {absent}{returning id}`
	// batchHoldText keeps the batch from being marked done until the end of the transaction. Others who add do not wait. It
	// also returns 1 if a job has one of some numbers.
	batchHoldText = `SELECT done_at, CASE WHEN EXISTS (SELECT 1 FROM {live} AS q WHERE q.id >= ?3 AND q.id <= ?4) THEN 1 ELSE 0 END AS taken
FROM {chanq__batches}{shared} WHERE id = ?1 AND queue = ?2{for share}`

	// batchLookText has the open batches of a queue, each with 1 if a job of it is live: one seek for each. It waits for no
	// lock, so on SQL Server a job that a transaction is deleting counts as gone: batchLiveText decides.
	batchLookText = `SELECT b.id, CASE WHEN {a job} THEN 1 ELSE 0 END AS live
FROM {chanq__batches} AS b{past} WHERE b.queue = ?1 AND b.done_at = 0`
	// batchDoneText changes nothing if the batch is done, or another transaction has locked it: adds to it, or marks it.
	batchDoneText = `UPDATE {chanq__batches}{past, exclusive} SET done_at = {now}{output done}
WHERE {id, past} AND done_at = 0{returning done}`
	batchLiveText = `SELECT CASE WHEN EXISTS (SELECT 1 FROM {live} AS q WHERE q.id > ?1 AND q.id <= ?2) THEN 1 ELSE 0 END AS live`
	// batchLiveLocked is batchLiveText of SQL Server. It waits for no lock: a locked job is live, whether a transaction is
	// deleting it or has leased it. XACT_ABORT is off for TRY: it would make 1222 an error that ends the transaction.
	batchLiveLocked = `SET XACT_ABORT OFF;
SET LOCK_TIMEOUT 0;
DECLARE @live int = 1;
BEGIN TRY
    SET @live = (SELECT CASE WHEN EXISTS (
        SELECT 1 FROM {live} AS q WITH (READCOMMITTEDLOCK, FORCESEEK)
        WHERE q.id > ?1 AND q.id <= ?2) THEN 1 ELSE 0 END);
END TRY
BEGIN CATCH
    IF ERROR_NUMBER() <> 1222
        THROW;
END CATCH;
SELECT @live AS live;`
	// batchDeadText waits for no lock, such as that of a DeathFunc on a job of the batch.
	batchDeadText = `SELECT count(*) AS n FROM {dead}{dirty} WHERE id > ?1 AND id <= ?2`
	batchTrimText = `DELETE {top trimmed}FROM {chanq__batches}{past} WHERE {oldest}
queue = ?1 AND done_at > 0 AND done_at < {now} - ?2
{limit trimmed}`

	batchColumns    = `id, queue, sent, done, made_at, done_at`
	batchListText   = `SELECT {top}` + batchColumns + ` FROM {chanq__batches} ORDER BY id DESC{limit}`
	batchStatusText = `SELECT ` + batchColumns + ` FROM {chanq__batches} WHERE id = ?1`
	batchLeftText   = `SELECT count(*) AS n FROM (
  SELECT {top counted}id FROM {live}{dirty} WHERE id > ?1 AND id <= ?2{limit counted}) AS q`
	batchJobsText = `SELECT {top}id FROM {table}{dirty} WHERE id > ?2 AND id <= ?3 ORDER BY id{limit}`
)

const (
	// trimmed is how many batches a statement trims.
	trimmed = 1000
	// counted is up to which number Status counts.
	counted = 10_000
)

// batchText returns a text for the database.
func batchText(n chanq.Names, text string) string {
	words := []string{
		"{output id}", "",
		"{absent}", "true ON CONFLICT DO NOTHING",
		"{returning id}", "\nRETURNING id",
		"{output done}", "",
		"{returning done}", "\nRETURNING sent, done",
		"{shared}", "",
		"{for share}", "",
		"{past}", "",
		"{past, exclusive}", "",
		"{id, past}", "id = ?1",
		// The order and the limit keep PostgreSQL from a sequential scan.
		"{a job}", "(SELECT q.id FROM {live} AS q WHERE q.id > b.id AND q.id <= b.last ORDER BY q.id LIMIT 1) IS NOT NULL",
		"{dirty}", "",
		"{top}", "",
		"{limit}", "\nLIMIT ?1",
		"{top counted}", "",
		"{limit counted}", fmt.Sprintf(" LIMIT %d", counted),
		"{top trimmed}", "",
		"{oldest}", "id IN (SELECT id FROM {chanq__batches} WHERE ",
		"{limit trimmed}", fmt.Sprintf("ORDER BY done_at LIMIT %d)", trimmed),
	}
	switch n.Dialect { // the first of two equal words applies
	case chanq.DialectPostgres:
		words = append([]string{
			"{for share}", " FOR SHARE",
			"{id, past}", "id = (SELECT id FROM {chanq__batches} WHERE id = ?1 FOR UPDATE SKIP LOCKED)",
		}, words...)
	case chanq.DialectSQLServer:
		if text == batchLiveText {
			text = batchLiveLocked
		}
		words = append([]string{
			"{output id}", "\nOUTPUT inserted.id",
			"{absent}", "NOT EXISTS (SELECT 1 FROM {chanq__batches} WITH (READCOMMITTEDLOCK) WHERE id = ?1)",
			"{returning id}", "",
			"{output done}", "\nOUTPUT inserted.sent, inserted.done",
			"{returning done}", "",
			"{shared}", " WITH (REPEATABLEREAD)",
			"{past}", " WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK)",
			"{past, exclusive}", " WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK, XLOCK)",
			"{a job}", "EXISTS (SELECT 1 FROM {live} AS q WITH (NOLOCK, FORCESEEK) WHERE q.id > b.id AND q.id <= b.last)",
			"{dirty}", " WITH (NOLOCK)",
			"{top}", "TOP (?1) ",
			"{limit}", "",
			"{top counted}", fmt.Sprintf("TOP (%d) ", counted),
			"{limit counted}", "",
			"{top trimmed}", fmt.Sprintf("TOP (%d) ", trimmed),
			"{oldest}", "",
			"{limit trimmed}", "",
		}, words...)
	}
	return n.SQL(strings.NewReplacer(words...).Replace(text))
}

// BatchTable has the batches of all queues of a schema, for their operators. It is safe for concurrent use.
type BatchTable struct {
	db    *sql.DB
	names chanq.Names
}

// OpenBatchTable opens the batches of a schema for their operators. It uses Dialect, Schema and StatementTimeout of cfg,
// and costs one round trip. Its errors say what to do: ErrNoSchema, ErrNewerSchema.
func OpenBatchTable(ctx context.Context, db *sql.DB, cfg chanq.Config) (*BatchTable, error) {
	names, err := batchNames(ctx, db, chanq.Config{Dialect: cfg.Dialect, Schema: cfg.Schema,
		StatementTimeout: cfg.StatementTimeout, Durability: chanq.DurabilityAsIs})
	if err != nil {
		return nil, err
	}
	return &BatchTable{db, names}, nil
}

// Batch is a stored batch.
type Batch struct {
	ID    chanq.ID
	Queue string
	Done  string // the kind of its done job
	Sent  int    // how many jobs SendTx was given
	// Made is when the batch was sent, and Ended when its done job was, or zero. By the clock of the database, in UTC.
	Made, Ended time.Time
}

// BatchStatus is the state of a batch.
type BatchStatus struct {
	Batch
	Left int // jobs in the queue, also those that a job has added. Counted up to 10,000
	Dead int // jobs that are dead now
}

// List returns the latest batches, the newest first. It costs one round trip.
func (t *BatchTable) List(ctx context.Context, most int) (list []Batch, err error) {
	rows, err := t.db.QueryContext(ctx, batchText(t.names, batchListText), most)
	if err != nil {
		return nil, batchFailed("list", chanq.ID{}, err)
	}
	defer rows.Close()
	for rows.Next() {
		var b Batch
		columns, done := b.columns()
		if err := cmp.Or(rows.Scan(columns...), done()); err != nil {
			return nil, batchFailed("list", chanq.ID{}, err)
		}
		list = append(list, b)
	}
	return list, batchFailed("list", chanq.ID{}, rows.Err())
}

// Status returns the state of a batch. ErrNoBatch: there is none, or it was trimmed. It costs three round trips, and
// reads up to 10,000 jobs and all dead ones of the batch. On SQL Server it waits for no locked job.
func (t *BatchTable) Status(ctx context.Context, batch chanq.ID) (s BatchStatus, err error) {
	columns, done := s.Batch.columns()
	err = queryRow(ctx, t.db, batchText(t.names, batchStatusText), []any{idArg(t.names, batch)}, columns...)
	if errors.Is(err, sql.ErrNoRows) {
		return s, batchFailed("status", batch, ErrNoBatch)
	}
	if err = cmp.Or(err, done()); err != nil {
		return s, batchFailed("status", batch, err)
	}
	of := t.names
	of.Queue = s.Queue
	jobs := []any{idArg(of, batch), idArg(of, lastOf(batch))}
	err = queryRow(ctx, t.db, batchText(of, batchLeftText), jobs, &s.Left)
	if err == nil {
		err = queryRow(ctx, t.db, batchText(of, batchDeadText), jobs, &s.Dead)
	}
	return s, batchFailed("status", batch, err)
}

// Jobs returns the IDs of the first jobs of a batch that are in the queue, and of the first ones that are dead, up to most of each. It costs
// two round trips, and waits for no lock on SQL Server.
func (t *BatchTable) Jobs(ctx context.Context, b Batch, most int) (left, dead []chanq.ID, err error) {
	of := t.names
	of.Queue = b.Queue
	if left, err = t.jobs(ctx, of, "{live}", b.ID, most); err == nil {
		dead, err = t.jobs(ctx, of, "{dead}", b.ID, most)
	}
	return left, dead, batchFailed("list the jobs of", b.ID, err)
}

func (t *BatchTable) jobs(ctx context.Context, of chanq.Names, table string, batch chanq.ID, most int) (list []chanq.ID, err error) {
	rows, err := t.db.QueryContext(ctx, batchText(of, strings.ReplaceAll(batchJobsText, "{table}", table)), most, idArg(of, batch), idArg(of, lastOf(batch)))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id chanq.ID
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		list = append(list, id)
	}
	return list, rows.Err()
}

// columns are where the batchColumns are scanned to. done completes the batch.
func (b *Batch) columns() (columns []any, done func() error) {
	var message []byte
	var made, ended int64
	return []any{&b.ID, &b.Queue, &b.Sent, &message, &made, &ended}, func() error {
		b.Made = time.UnixMilli(made).UTC()
		if ended > 0 {
			b.Ended = time.UnixMilli(ended).UTC()
		}
		if message == nil {
			return nil // nothing was scanned
		}
		m, err := storedDone(message)
		b.Done = m.Type
		return err
	}
}

// storedDone returns a done job as it is stored, in JSON.
func storedDone(data []byte) (m chanq.Message[[]byte], err error) {
	err = json.Unmarshal(data, &m)
	return m, err
}

// batchFailed returns an error with what has failed, or nil. batch is zero if it is not about one batch.
func batchFailed(op string, batch chanq.ID, err error) error {
	switch {
	case err == nil:
		return nil
	case batch.IsZero():
		return fmt.Errorf("chanq: %s batches: %w", op, err)
	}
	return fmt.Errorf("chanq: %s batch %s: %w", op, batch, err)
}
