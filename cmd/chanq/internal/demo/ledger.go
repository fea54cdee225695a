package demo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/sqlbatch"
)

// ledger is the demo's own record in the database of the queues: the business rows of this
// application. Its statements are plain SQL. ledger_sql.go has the differences between engines.
type ledger struct {
	db      *sql.DB
	dialect sqlbatch.Dialect
	texts   texts
}

// state is the one row of the demo's table of runs.
type state struct {
	dir    string
	next   int // number of the next file to be listed
	listed bool
}

// row is a file in the ledger.
type row struct {
	file
	skipped string // why it was not sent
	message chanq.ID
	digest  []byte // from the worker; nil without a result, empty with a problem
	problem string // the reason why the worker could not hash it
	counted int    // results that were recorded
}

func newLedger(db *sql.DB, d sqlbatch.Dialect, schema string) *ledger {
	return &ledger{db: db, dialect: d, texts: newTexts(d, schema)}
}

// state returns nil for a database without a demo.
func (l *ledger) state(ctx context.Context) (*state, error) {
	s, err := l.stateIn(ctx, l.db)
	if errors.Is(err, sql.ErrNoRows) || err != nil && l.dialect.Classify(err) == sqlbatch.NoSchema {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the demo's record: %w", err)
	}
	return &s, nil
}

type querier interface {
	QueryRowContext(context.Context, string, ...any) *sql.Row
}

func (l *ledger) stateIn(ctx context.Context, q querier) (s state, err error) {
	err = q.QueryRowContext(ctx, l.texts.state).Scan(&s.dir, &s.next, &s.listed)
	return s, err
}

// refuseForeignQueues protects queues with the demo's names that do not belong to the demo.
func (l *ledger) refuseForeignQueues(ctx context.Context) error {
	var name string
	err := l.db.QueryRowContext(ctx, l.texts.foreign, filesQueue, sumsQueue).Scan(&name)
	switch {
	case err == nil:
		return fmt.Errorf("the database has a queue %q that is not the demo's: use another database or --schema", name)
	case errors.Is(err, sql.ErrNoRows), l.dialect.Classify(err) == sqlbatch.NoSchema:
		return nil
	default:
		return fmt.Errorf("look for queues: %w", err)
	}
}

func (l *ledger) create(ctx context.Context, dir string) error {
	return l.transact(ctx, "create the demo's tables", func(ctx context.Context, tx *sql.Tx) error {
		for _, text := range l.texts.create {
			if _, err := tx.ExecContext(ctx, text); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, l.texts.begin, dir)
		return err
	})
}

func (l *ledger) reset(ctx context.Context, dir string) error {
	return l.transact(ctx, "forget the demo", func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, l.texts.forget); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, l.texts.reset, dir)
		return err
	})
}

// errOvertaken: another process has listed files in the meantime.
var errOvertaken = errors.New("another demo is listing the same folder in this database")

// number reserves n numbers for files, in the transaction that lists them, or closes the list with
// listed. Two processes cannot reserve the same numbers.
func (l *ledger) number(ctx context.Context, tx *sql.Tx, next, n int) error {
	return l.one(ctx, tx, l.texts.number, next+n, next)
}

func (l *ledger) finishListing(ctx context.Context, next int) error {
	return l.transact(ctx, "finish the list", func(ctx context.Context, tx *sql.Tx) error {
		return l.one(ctx, tx, l.texts.listed, next)
	})
}

func (l *ledger) one(ctx context.Context, tx *sql.Tx, text string, args ...any) error {
	res, err := tx.ExecContext(ctx, text, args...)
	if err != nil {
		return err
	}
	n, err := res.RowsAffected()
	if err == nil && n != 1 {
		err = errOvertaken
	}
	return err
}

// insertRows is the most files per INSERT: six parameters each, well below SQL Server's limit of
// 2,100.
const insertRows = 100

// list records files, which are already numbered, with the messages that were sent for them.
func (l *ledger) list(ctx context.Context, tx *sql.Tx, entries []entry, messages []chanq.ID) error {
	for len(entries) > 0 {
		n := min(len(entries), insertRows)
		args := make([]any, 0, 6*n)
		for i, e := range entries[:n] {
			id := messages[i]
			args = append(args, e.No, e.Path, e.Size, e.Mtime, id[:], e.skipped)
		}
		if _, err := tx.ExecContext(ctx, l.texts.insert(n), args...); err != nil {
			return err
		}
		entries, messages = entries[n:], messages[n:]
	}
	return nil
}

// record counts a result. It returns false for a result whose file and message are not in the
// ledger, because the demo was started over.
func (l *ledger) record(ctx context.Context, tx *sql.Tx, s sum) (bool, error) {
	digest := s.Digest
	if digest == nil {
		digest = []byte{} // drivers treat a nil digest differently
	}
	res, err := tx.ExecContext(ctx, l.texts.record, digest, s.Problem, s.No, s.Message[:])
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n == 1, err
}

// counts returns the number of files to be hashed so far, and those of them that are done.
func (l *ledger) counts(ctx context.Context) (files, done int, err error) {
	if err = l.db.QueryRowContext(ctx, l.texts.done).Scan(&done); err == nil {
		err = l.db.QueryRowContext(ctx, l.texts.sent).Scan(&files)
	}
	if err != nil {
		err = fmt.Errorf("count the files: %w", err)
	}
	return files, done, err
}

// all yields the rows in the order of the list; the second value is an error that ends the
// sequence.
func (l *ledger) all(ctx context.Context) iter.Seq2[row, error] {
	return func(yield func(row, error) bool) {
		rows, err := l.db.QueryContext(ctx, l.texts.all)
		if err != nil {
			yield(row{}, fmt.Errorf("read the list: %w", err))
			return
		}
		defer rows.Close()
		for rows.Next() {
			var r row
			var id []byte
			if err := rows.Scan(&r.No, &r.Path, &r.Size, &r.Mtime, &id, &r.skipped, &r.digest, &r.problem, &r.counted); err != nil {
				yield(row{}, err)
				return
			}
			copy(r.message[:], id)
			if !yield(r, nil) {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(row{}, fmt.Errorf("read the list: %w", err))
		}
	}
}

// transact runs f in a transaction and repeats it, with pauses, while the database reports that the
// next attempt may succeed. Once it has begun, ctx does not end it: work in progress is finished,
// and the outcome of a commit is determined. f must detect whether an earlier attempt with an
// unconfirmed commit was applied after all.
func (l *ledger) transact(ctx context.Context, what string, f func(context.Context, *sql.Tx) error) error {
	const tries, timeout = 6, 30 * time.Second
	for i := 0; ; i++ {
		bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		err := l.once(bound, f)
		cancel()
		if err == nil {
			return nil
		}
		again := false
		switch l.dialect.Classify(err) {
		case sqlbatch.RolledBack, sqlbatch.Refused:
			again = i < tries && ctx.Err() == nil
		case sqlbatch.Unknown: // even if ctx has ended: the commit may have caused that
			again = i < tries
		}
		if !again || errors.Is(err, errOvertaken) {
			return fmt.Errorf("%s: %w", what, err)
		}
		time.Sleep(10*time.Millisecond<<i + rand.N(10*time.Millisecond))
	}
}

func (l *ledger) once(ctx context.Context, f func(context.Context, *sql.Tx) error) error {
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := f(ctx, tx); err != nil {
		_ = tx.Rollback() // the error of f has the cause
		return err
	}
	return tx.Commit()
}
