package send

import (
	"context"
	"fmt"
	"time"

	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// INSERTs of rows that might be duplicates, and the messages that they duplicate.

// Insert has the statements: see table.Insert.
type Insert interface {
	Enqueue(ctx context.Context, rows []sqlbatch.Row) error
	EnqueueNew(ctx context.Context, rows []sqlbatch.Row) (stored []table.Live, err error)
	Find(ctx context.Context, ids [][16]byte, keys []string) (found []table.Live, err error)
}

// Inserts stores rows by statements, on a session or in a transaction.
type Inserts struct {
	Insert
	Classify func(error) sqlbatch.Class
	FindIDs  int // of one query

	begin func() // called before each statement; may be nil
}

func (i Inserts) begins() {
	if i.begin != nil {
		i.begin()
	}
}

// Store stores rows and fills their receipts. keyed means that an ID or key might be in the queue already: see
// StoreNew.
func (i Inserts) Store(ctx context.Context, rows []sqlbatch.Row, receipts []Receipt, keyed bool) error {
	if !keyed {
		i.begins()
		return i.Enqueue(ctx, rows)
	}
	_, err := i.StoreNew(ctx, rows, receipts)
	return err
}

// StoreAll stores rows in a transaction, in as many statements as necessary.
func (i Inserts) StoreAll(ctx context.Context, rows []sqlbatch.Row, receipts []Receipt, keyed bool, most,
	bytes int) error {
	for len(rows) > 0 {
		n := Cut(rows, most, bytes, func(r *sqlbatch.Row) (*sqlbatch.Row, int, bool) { return r, len(r.Body), keyed })
		if err := i.Store(ctx, rows[:n], receipts[:n], keyed); err != nil {
			return err
		}
		rows, receipts = rows[n:], receipts[n:]
	}
	return nil
}

// UndecidedError means that the database repeatedly rejected a row as a duplicate, and had no message that it
// duplicates.
type UndecidedError struct {
	Row sqlbatch.Row
	Err error // of the last INSERT; nil if the INSERT left the row out
}

func (e *UndecidedError) Error() string {
	what := fmt.Sprintf("ID %x-%x-%x-%x-%x", e.Row.ID[:4], e.Row.ID[4:6], e.Row.ID[6:8], e.Row.ID[8:10], e.Row.ID[10:])
	if e.Row.Key != "" {
		what = fmt.Sprintf("dedup key %q", e.Row.Key)
	}
	text := fmt.Sprintf("the database rejected %s as a duplicate %d times, but the queue has no such message", what,
		keyTries)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

func (e *UndecidedError) Unwrap() error { return e.Err }

// keyTries is the number of INSERTs of a row that the database reports as present and as absent: the conflicting
// message appeared or disappeared between two statements each time. The pauses between the tries are two seconds in
// total.
const (
	keyTries     = 10
	keyPauseHigh = 500 * time.Millisecond
)

// StoreNew stores rows whose ID or key might be in the queue already. The INSERT leaves out rows that are there, and a
// query determines which ones. The rest is sent again if the INSERT and the query contradict each other, or if the
// INSERT meets a row that another transaction has just stored (Duplicate). In a caller's transaction such an error
// leaves the transaction unchanged; otherwise the next statement fails. With an error, open are the rows that are
// neither known to be stored nor duplicates by their receipts.
func (i Inserts) StoreNew(ctx context.Context, rows []sqlbatch.Row, receipts []Receipt) (open []sqlbatch.Row,
	err error) {
	of := make(map[[16]byte]*Receipt, len(rows))
	for n := range rows {
		of[rows[n].ID] = &receipts[n]
	}
	var pause batch.Backoff
	var refused error
	open = rows
	for tries, before := 0, 0; len(open) > 0; tries++ {
		if len(open) != before {
			tries, before, pause = 0, len(open), batch.Backoff{Low: batch.LowPause, High: keyPauseHigh}
		}
		switch tries {
		case 0:
		case keyTries:
			return open, &UndecidedError{open[0], refused}
		default:
			batch.Sleep(ctx, pause.Pause())
		}
		if open, refused, err = i.tryNew(ctx, open, of); err != nil {
			return open, err
		}
	}
	return nil, nil
}

// tryNew runs the INSERT and the query once. open are the rows that are to be sent again, or with an error those of
// StoreNew. refused is a Duplicate of the INSERT.
func (i Inserts) tryNew(ctx context.Context, rows []sqlbatch.Row, of map[[16]byte]*Receipt) (open []sqlbatch.Row,
	refused, err error) {
	i.begins()
	stored, err := i.EnqueueNew(ctx, rows)
	switch {
	case err == nil:
		open, err = i.explain(ctx, match(rows, stored, of, false), of)
		return open, nil, err
	case i.Classify(err) == sqlbatch.Duplicate:
		return rows, err, nil
	}
	return rows, nil, err
}

// explain looks up what kept rows from being stored: their own ID (they are stored already) or a message with their
// key. It returns the rows for which it found neither: they are to be stored again. So are rows that do not keep the
// first message: the one with their key was leased meanwhile.
func (i Inserts) explain(ctx context.Context, missing []sqlbatch.Row, of map[[16]byte]*Receipt) (again []sqlbatch.Row,
	err error) {
	for len(missing) > 0 {
		chunk := missing[:min(len(missing), i.FindIDs)]
		var ids [][16]byte
		var keys []string
		for n := range chunk {
			ids = append(ids, chunk[n].ID)
			if chunk[n].Key != "" {
				keys = append(keys, chunk[n].Key)
			}
		}
		i.begins()
		found, err := i.Find(ctx, ids, keys)
		if err != nil {
			return append(again, missing...), table.NotRun(err)
		}
		again = append(again, match(chunk, found, of, true)...)
		missing = missing[len(chunk):]
	}
	return again, nil
}

// match returns the rows that are not in the queue according to a statement: neither by their ID, nor because of a
// message with their key, which their receipts then have. After a query, that is only a message that KeepFirst keeps.
func match(rows []sqlbatch.Row, found []table.Live, of map[[16]byte]*Receipt, query bool) (open []sqlbatch.Row) {
	own, byKey := make(map[[16]byte]bool, len(found)), map[string][16]byte{}
	for _, l := range found {
		own[l.ID] = true
		if l.Key != "" {
			byKey[l.Key] = l.ID
		}
	}
	for _, row := range rows {
		other, met := byKey[row.Key]
		switch replaced := row.OnDuplicate > sqlbatch.KeepQueued; {
		case own[row.ID]:
		case met && (!query || row.OnDuplicate == sqlbatch.KeepFirst):
			*of[row.ID] = Receipt{ID: other, Duplicate: !replaced, Replaced: replaced}
		default:
			open = append(open, row)
		}
	}
	return open
}
