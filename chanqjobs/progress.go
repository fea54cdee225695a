package chanqjobs

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/chanq/chanq"
)

// progressTables has a row for each job that has reported its progress or saved its state. Times are Unix milliseconds.
// The index leads to the rows that are trimmed.
var progressTables = chanq.Tables{Name: "progress", Version: 1, MinVersion: 1, Create: func(d chanq.Dialect, _ int) []string {
	id := map[chanq.Dialect]string{chanq.DialectPostgres: "uuid", chanq.DialectSQLServer: "binary(16)"}[d]
	return []string{strings.ReplaceAll(`{create chanq__progress} (
  queue {text} NOT NULL,
  id    {id} NOT NULL,
  fence bigint NOT NULL,
  at    bigint NOT NULL,
  done  bigint NOT NULL DEFAULT 0,
  note  {text} NOT NULL DEFAULT '',
  state {bytes} NULL,
  PRIMARY KEY (queue, id)
)`, "{id}", cmp.Or(id, "BLOB")), trimIndex(d, "chanq__progress", "at")}
}}

const (
	// reportEvery is the least time between two statements for a job.
	reportEvery = time.Second
	// progressFor is how long a row is kept after its last report.
	progressFor = 7 * 24 * time.Hour
	// doneScale is the number that is stored for a done of 1.
	doneScale = 1_000_000
	// mostNote is the most characters of a note.
	mostNote = 400
)

const (
	// progressText stores nothing if the message has left the queue, or a later holder has it: a claim raises the fence of the message. In an
	// ordered queue that comes later, so the fence of the last report counts as well.
	progressText = `INSERT INTO {chanq__progress} AS p (queue, id, fence, at, {columns})
SELECT ?1::text, q.id, ?3::bigint, {now}, {values} FROM {live} AS q WHERE q.id = ?2 AND q.fence <= ?3
ON CONFLICT (queue, id) DO UPDATE SET fence = excluded.fence, at = excluded.at, {set} WHERE p.fence <= excluded.fence
RETURNING 1`
	// progressBatch updates what the INSERT has found, also a row of another Reporter of this moment.
	progressBatch = `DECLARE @stored int = 0;
INSERT INTO {chanq__progress} (queue, id, fence, at, {columns})
SELECT ?1, q.id, ?3, {now}, {values} FROM {live} AS q
WHERE q.id = ?2 AND q.fence <= ?3 AND NOT EXISTS (SELECT 1 FROM {chanq__progress} AS p WITH (UPDLOCK, SERIALIZABLE) WHERE p.queue = ?1 AND p.id = ?2);
SET @stored = @@ROWCOUNT;
IF @stored = 0
BEGIN
    UPDATE {chanq__progress} SET fence = ?3, at = {now}, {set}
    WHERE queue = ?1 AND id = ?2 AND fence <= ?3 AND EXISTS (SELECT 1 FROM {live} AS q WHERE q.id = ?2 AND q.fence <= ?3);
    SET @stored = @@ROWCOUNT;
END;
SELECT 1 AS stored WHERE @stored > 0;`
	progressTrimText = `DELETE FROM {chanq__progress} WHERE (queue, id) IN (
  SELECT queue, id FROM {chanq__progress} WHERE at < {now} - ?1 ORDER BY at LIMIT 100{skip locked})`
	progressTrimTop  = `DELETE TOP (100) FROM {chanq__progress} WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK) WHERE at < {now} - ?1`
	progressReadText = `SELECT at, done, note FROM {chanq__progress} WHERE queue = ?1 AND id = ?2`
	stateReadText    = `SELECT state FROM {chanq__progress} WHERE queue = ?1 AND id = ?2`
)

// What Report and Save write. A report leaves the state, and a state the report.
const (
	reportSet = "done = ?4, note = ?5"
	saveSet   = "state = ?4"
)

var (
	reportWords = []string{"{columns}", "done, note", "{values}", "?4::bigint, ?5::text", "{set}", reportSet}
	saveWords   = []string{"{columns}", "state", "{values}", "?4::bytea", "{set}", saveSet}
)

// progressFrom returns a text for the database.
func progressFrom(n chanq.Names, text string, words ...string) string {
	skip := ""
	switch n.Dialect {
	case chanq.DialectPostgres:
		skip = " FOR UPDATE SKIP LOCKED"
	case chanq.DialectSQLServer:
		text = strings.NewReplacer(progressText, progressBatch, progressTrimText, progressTrimTop).Replace(text)
	}
	return typed(n, strings.NewReplacer(append(words, "{skip locked}", skip)...).Replace(text))
}

// Reporter stores the progress and the state of one job, for as long as its lease lasts. It is safe for concurrent use.
type Reporter struct {
	q     *chanq.Queue[[]byte]
	id    chanq.ID
	fence int64
	wrong error // the job is of another queue

	mu    sync.Mutex // held over the statement: there is one at a time
	next  time.Time  // when a report is sent again; zero before the first one
	ended bool       // a done of 1 was sent
}

// ReporterOf returns the Reporter of a job of a queue. Call it once in a handler. It costs no round trip. The table is made by Migrate.
func ReporterOf[Q, T any](q *chanq.Queue[Q], l *chanq.Lease[T]) *Reporter {
	return &Reporter{q: q.Raw(), id: l.ID, fence: l.Fence, wrong: ofQueue(q, &l.Delivery)}
}

// Report stores how much of the job is done, from 0 to 1, and a note of up to 400 characters, of which the rest is cut off. Call it as often as you
// like: it stores once per second, in one statement, and otherwise returns nil immediately. The first 1 is always stored. The command chanq peek --id and ReadProgress show the
// last stored report. A job's row is deleted 7 days after its last report.
//
// It returns chanq.ErrLeaseLost if another process has the job, or the job has left the queue: return from your handler. Do not call it while you
// hold a transaction in which you have acked the job.
func (r *Reporter) Report(ctx context.Context, done float64, note string) error {
	if r.wrong != nil {
		return r.wrong
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	first, last := r.next.IsZero(), done >= 1 && !r.ended
	if time.Now().Before(r.next) && !last {
		return nil
	}
	r.next, r.ended = time.Now().Add(reportEvery), r.ended || last
	if !(done > 0) { // also NaN
		done = 0
	}
	err := r.write(ctx, "report", reportWords, int64(math.Round(min(done, 1)*doneScale)), cutNote(note))
	if err == nil && first {
		r.trim(ctx)
	}
	return err
}

// MaxState is the most bytes of a saved state.
const MaxState = 64 << 10

// Save stores where the job is, so that the next process continues there: see Saved. It stores each time, in one statement, up to MaxState
// bytes. Call it after each step that you do not want to repeat, for example once per page.
//
// A state is deleted like a report. Save returns the errors of Report, and chanq.ErrTooLarge.
func (r *Reporter) Save(ctx context.Context, state []byte) error {
	switch {
	case r.wrong != nil:
		return r.wrong
	case len(state) > MaxState:
		return r.failed(ctx, "save", fmt.Errorf("%w: the state is %d bytes: must be at most %d", chanq.ErrTooLarge, len(state), MaxState))
	}
	return r.write(ctx, "save", saveWords, state)
}

// Saved returns the last state that this process or an earlier holder of the job has saved, or nil. Call it once, when your handler starts. It
// costs two round trips.
func (r *Reporter) Saved(ctx context.Context) (state []byte, err error) {
	if r.wrong != nil {
		return nil, r.wrong
	}
	r.trim(ctx)
	names := r.q.Names()
	err = queryRow(ctx, r.q.DB(), progressFrom(names, stateReadText), []any{names.Queue, idArg(names, r.id)}, &state)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return state, r.failed(ctx, "read the state of", err)
}

// write writes the row of the job.
func (r *Reporter) write(ctx context.Context, op string, words []string, values ...any) error {
	names, stored := r.q.Names(), 0
	args := append([]any{names.Queue, idArg(names, r.id), r.fence}, values...)
	return r.failed(ctx, op, queryRow(ctx, r.q.DB(), progressFrom(names, progressText, words...), args, &stored))
}

// trim deletes old rows. What stays, others trim.
func (r *Reporter) trim(ctx context.Context) {
	_, _ = r.q.DB().ExecContext(ctx, progressFrom(r.q.Names(), progressTrimText), progressFor.Milliseconds())
}

// failed returns an error with what has failed, or nil.
func (r *Reporter) failed(ctx context.Context, op string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrNoRows):
		err = chanq.ErrLeaseLost
	case !errors.Is(err, chanq.ErrTooLarge):
		err = cmp.Or(missing(ctx, r.q.DB(), r.q.Names(), progressTables), err)
	}
	return fmt.Errorf("chanqjobs: %s %s %s: %w", op, r.q.Label(), r.id, err)
}

// cutNote shortens a note without splitting a character. SQL Server counts those outside of the basic plane twice.
func cutNote(note string) string {
	note = strings.ToValidUTF8(strings.ReplaceAll(note, "\x00", ""), "\uFFFD")
	units := 0
	for at, c := range note {
		if units++; c > 0xFFFF {
			units++
		}
		if units > mostNote {
			return note[:at]
		}
	}
	return note
}

// Progress is the last stored report of a job.
type Progress struct {
	At   time.Time // by the clock of the database
	Done float64   // from 0 to 1
	Note string
}

// ReadProgress returns the last stored report of a job, or ErrNoProgress. It uses Dialect and Schema of cfg, and costs one or two round trips.
func ReadProgress(ctx context.Context, db *sql.DB, queue string, id chanq.ID, cfg chanq.Config) (p Progress, err error) {
	existing := progressTables
	existing.Create = nil
	names, err := chanq.MigrateTables(ctx, db, chanq.Config{Dialect: cfg.Dialect, Schema: cfg.Schema, Durability: chanq.DurabilityAsIs}, existing)
	if errors.Is(err, chanq.ErrNoSchema) {
		return p, ErrNoProgress
	}
	if err != nil {
		return p, err
	}
	var at, done int64
	err = queryRow(ctx, db, progressFrom(names, progressReadText), []any{queue, idArg(names, id)}, &at, &done, &p.Note)
	if errors.Is(err, sql.ErrNoRows) {
		return p, ErrNoProgress
	}
	if err == nil && done == 0 && p.Note == "" { // of Save only
		return p, ErrNoProgress
	}
	p.At, p.Done = time.UnixMilli(at), float64(done)/doneScale
	return p, err
}

// ErrNoProgress: the job has not reported.
var ErrNoProgress = errors.New("chanqjobs: no progress was reported")
