package chanqjobs

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/chanq/chanq"
)

// MaxResult is the most bytes of a result, as JSON.
const MaxResult = 64 << 10

// Errors of Await, for errors.Is.
var (
	// ErrDead: the job is dead. The error is a *DeadError.
	ErrDead = errors.New("chanqjobs: the job is dead")
	// ErrUnknown: no job has this ID. It was never sent, was cancelled, or its result is no longer kept: see Options.Keep.
	ErrUnknown = errors.New("chanqjobs: no such job, and no result of it")
)

// DeadError is returned by Await for a dead job.
type DeadError struct {
	ID        chanq.ID
	Cause     chanq.Cause
	LastError string // as chanqadmin.Entry has it
}

func (e *DeadError) Error() string {
	return fmt.Sprintf("chanqjobs: the job %s is dead (%s): %s", e.ID, e.Cause, e.LastError)
}

// Is reports whether target is ErrDead.
func (e *DeadError) Is(target error) bool { return target == ErrDead }

// resultTables has a row for each result of a job. Times are Unix milliseconds. The index leads to the results that are
// trimmed.
var resultTables = chanq.Tables{Name: "results", Version: 1, MinVersion: 1, Create: func(d chanq.Dialect, _ int) []string {
	id := map[chanq.Dialect]string{chanq.DialectPostgres: "uuid", chanq.DialectSQLServer: "binary(16)"}[d]
	return []string{strings.ReplaceAll(`{create chanq__results} (
  queue  {text} NOT NULL,
  id     {id} NOT NULL,
  result {bytes} NOT NULL,
  until  bigint NOT NULL,
  PRIMARY KEY (queue, id)
)`, "{id}", cmp.Or(id, "BLOB")), trimIndex(d, "chanq__results", "until")}
}}

const (
	resultStoreText = `INSERT INTO {chanq__results} (queue, id, result, until) VALUES (?1, ?2, ?3, {now} + ?4)
ON CONFLICT (queue, id) DO UPDATE SET result = excluded.result, until = excluded.until`
	resultReplaceText = `DELETE FROM {chanq__results} WHERE queue = ?1 AND id = ?2;
INSERT INTO {chanq__results} (queue, id, result, until) VALUES (?1, ?2, ?3, {now} + ?4);`
	// resultTrimText skips what other transactions trim.
	resultTrimText = `DELETE FROM {chanq__results} WHERE (queue, id) IN (
  SELECT queue, id FROM {chanq__results} WHERE until < {now} ORDER BY until LIMIT 1000{skip locked})`
	resultTrimTop = `DELETE TOP (1000) FROM {chanq__results} WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK) WHERE until < {now}`
	// resultReadText seeks four primary keys.
	resultReadText = `SELECT (SELECT result FROM {chanq__results} WHERE queue = ?1 AND id = ?2) AS result,
  (SELECT 1 FROM {live} WHERE id = ?2) AS live,
  (SELECT cause FROM {dead} WHERE id = ?2) AS cause,
  (SELECT last_error FROM {dead} WHERE id = ?2) AS last_error`
)

// resultText returns a text for the database.
func resultText(n chanq.Names, text string) string {
	skip := ""
	switch n.Dialect {
	case chanq.DialectPostgres:
		skip = " FOR UPDATE SKIP LOCKED"
	case chanq.DialectSQLServer:
		text = strings.NewReplacer(resultStoreText, resultReplaceText, resultTrimText, resultTrimTop).Replace(text)
	}
	return render(n, text, "{skip locked}", skip)
}

const (
	// trimEach is after how many results of a kind up to 1,000 are deleted that are no longer kept.
	trimEach = 100
	// storeFor is how long a transaction is repeated that was rolled back, so that fn need not be called again.
	storeFor = 10 * time.Second
)

// Returns registers the handler of a kind with results, for Await. When fn returns a result, one transaction on the database of q stores it and
// acks the job: a result exists if and only if its job is acked. It is stored as JSON of up to MaxResult bytes, and kept for Options.Keep; a
// larger one dead-letters the job. The table is made by Migrate. Do not use this kind in a Pipe. A job of another queue fails.
//
// A result costs two statements and a commit (PostgreSQL: three), which replace the ack. If it is rolled back, it is repeated for up to 10 s.
func Returns[T, R any](m *Mux, q *chanq.Queue[Job], k *Kind[T], fn func(context.Context, *chanq.Lease[T]) (R, error), o Options) {
	if o.Keep < 0 {
		panic(fmt.Sprintf("chanqjobs: kind %q: Options.Keep is %v: must not be negative", k.name, o.Keep))
	}
	names, keep := q.Names(), cmp.Or(o.Keep, time.Hour)
	store, trim := resultText(names, resultStoreText), resultText(names, resultTrimText)
	var stored atomic.Int64
	handler := func(ctx context.Context, l *chanq.Lease[T]) error {
		if err := ofQueue(q, &l.Delivery); err != nil {
			return err
		}
		result, err := fn(ctx, l)
		if err != nil {
			return err
		}
		data, err := json.Marshal(result)
		if err == nil && len(data) > MaxResult {
			err = fmt.Errorf("%w: it has %d bytes, at most %d are stored", chanq.ErrTooLarge, len(data), MaxResult)
		}
		if err != nil {
			return chanq.DeadLetter(fmt.Errorf("the result of the kind %q: %w", k.name, err))
		}
		err = repeatTx(ctx, q.DB(), names, func(ctx context.Context, tx *sql.Tx) error {
			err := readCommitted(ctx, tx, names)
			if err == nil {
				_, err = tx.ExecContext(ctx, store, names.Queue, idArg(names, l.ID), data, keep.Milliseconds())
			}
			if err != nil {
				return fmt.Errorf("store the result: %w", err)
			}
			return l.AckTx(ctx, tx)
		})
		if err != nil {
			return err
		}
		if stored.Add(1)%trimEach == 1 { // what stays, the next trim deletes
			_, _ = q.DB().ExecContext(ctx, trim)
		}
		return nil
	}
	if fn == nil {
		handler = nil
	}
	Handle(m, k, handler, o)
}

// repeatTx is chanq.InTx, repeated while it is rolled back, unless the lease was lost or settled, or the table is missing.
func repeatTx(ctx context.Context, db *sql.DB, names chanq.Names, fn func(context.Context, *sql.Tx) error) error {
	until := time.Now().Add(storeFor)
	for rest := firstAwait; ; rest = min(2*rest, longestAwait) {
		err := chanq.InTx(ctx, db, fn)
		failed := (*chanq.OpError)(nil)
		switch {
		case err == nil, ctx.Err() != nil, errors.Is(err, chanq.ErrLeaseLost), errors.Is(err, chanq.ErrSettled):
			return err
		case errors.As(err, &failed) && failed.Op == "commit" && failed.Unknown, time.Now().Add(rest).After(until):
			return err
		}
		if none := missing(ctx, db, names, resultTables); none != nil {
			return none
		}
		pause(ctx, rest)
	}
}

const (
	firstAwait   = 10 * time.Millisecond
	longestAwait = time.Second
)

// Await waits for the result of a job whose kind was registered by Returns, or until ctx is cancelled. It reads immediately, after 10 ms, and
// then after longer pauses up to 1 s: one statement each. Its errors are ErrDead, ErrUnknown, chanq.ErrCancelled if the job left the queue without a result, the cause of ctx, or an error of
// the database, after which you can call it again. Do not call it while you hold a transaction.
func Await[R any](ctx context.Context, q *chanq.Queue[Job], id chanq.ID) (result R, err error) {
	names := q.Names()
	text, args := resultText(names, resultReadText), []any{names.Queue, idArg(names, id)}
	seen, gone := false, false
	for rest := firstAwait; ; {
		var data []byte
		var live, cause sql.NullInt64
		var lastError sql.NullString
		err := queryRow(ctx, q.DB(), text, args, &data, &live, &cause, &lastError)
		switch {
		case ctx.Err() != nil:
			return result, awaitFailed(q, id, context.Cause(ctx))
		case err != nil:
			return result, awaitFailed(q, id, cmp.Or(missing(ctx, q.DB(), names, resultTables), err))
		case data != nil:
			return result, awaitFailed(q, id, json.Unmarshal(data, &result))
		case live.Valid:
			seen, gone = true, false
		case cause.Valid:
			return result, &DeadError{id, chanq.Cause(cause.Int64), lastError.String}
		case !gone: // on SQL Server it might have moved from one table to another while the statement read them
			gone = true
			continue
		case seen:
			return result, awaitFailed(q, id, fmt.Errorf("%w, or its kind has no results", chanq.ErrCancelled))
		default:
			return result, awaitFailed(q, id, ErrUnknown)
		}
		pause(ctx, rest)
		rest = min(2*rest, longestAwait)
	}
}

// awaitFailed returns an error with what has failed, or nil.
func awaitFailed(q *chanq.Queue[Job], id chanq.ID, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("chanqjobs: await %s %s: %w", q.Label(), id, err)
}
