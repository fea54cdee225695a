package chanq

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// INSERTs of rows that may be duplicates, and what they are duplicates of.

// undecidedError: again and again the database took a row for a duplicate, and
// showed nothing that it is a duplicate of.
type undecidedError struct {
	row sqlbatch.Row
	err error // of the last INSERT; nil if that left the row out
}

func (e *undecidedError) Error() string {
	what := "ID " + ID(e.row.ID).String()
	if e.row.Key != "" {
		what = fmt.Sprintf("dedup key %q", e.row.Key)
	}
	text := fmt.Sprintf("the database refuses %s as a duplicate, and has none in the queue, in %d tries", what, keyTries)
	if e.err != nil {
		text += ": " + e.err.Error()
	}
	return text
}

func (e *undecidedError) Unwrap() error { return e.err }

// keyTries is how often a row is sent of which the database says that it is there,
// and that it is not: its holder came or left between two statements, each time. The
// pauses between the tries are two seconds in all.
const (
	keyTries     = 10
	keyPauseLow  = 5 * time.Millisecond
	keyPauseHigh = 500 * time.Millisecond
)

// enqueueNew is enqueue for rows whose ID or key may be in the queue already: the INSERT leaves out rows that are there, and a
// look finds out which rows these are. The rest is sent again if the INSERT and the look contradict each other, or if the INSERT
// meets a row that another transaction has just stored (Duplicate). In a caller's transaction such an error leaves the
// transaction as it was; if it does not, the next statement fails. With an error, open are the rows that are neither known to be
// stored nor duplicates by their receipts.
func (q *queue) enqueueNew(ctx context.Context, run runner, build sqlbatch.Queue, rows []sqlbatch.Row, receipts []Receipt) (open []sqlbatch.Row, err error) {
	index := make(map[ID]int, len(rows))
	for i := range rows {
		index[rows[i].ID] = i
	}
	pause := batch.Backoff{Low: keyPauseLow, High: keyPauseHigh}
	tries, before := 0, len(rows)
	var refused error
	for open = rows; len(open) > 0; {
		if len(open) < before {
			tries, before, pause = 0, len(open), batch.Backoff{Low: keyPauseLow, High: keyPauseHigh}
		}
		if tries == keyTries {
			return open, &undecidedError{open[0], refused}
		}
		if tries > 0 {
			batch.Sleep(ctx, pause.Pause())
		}
		tries++
		var stored []ID
		if refused = run(build.EnqueueNew(open), collectIDs(&stored)); refused != nil {
			if q.classify(refused) == sqlbatch.Duplicate {
				continue
			}
			return open, refused
		}
		isStored := make(map[ID]bool, len(stored))
		for _, id := range stored {
			isStored[id] = true
		}
		var missing []sqlbatch.Row
		for _, row := range open {
			if !isStored[row.ID] {
				missing = append(missing, row)
			}
		}
		if open, err = q.explainMissing(run, build, missing, receipts, index); err != nil {
			return open, table.NotRun(err)
		}
	}
	return nil, nil
}

// explainMissing looks for what kept rows from being stored: their own ID (they are stored already) or a message with their
// key. It returns those for which it found neither: they are to be stored again.
func (q *queue) explainMissing(run runner, build sqlbatch.Queue, missing []sqlbatch.Row, receipts []Receipt, index map[ID]int) (again []sqlbatch.Row, err error) {
	for len(missing) > 0 {
		chunk := missing[:min(len(missing), q.dialect.Traits().FindIDs)]
		var ids [][16]byte
		var keys []string
		for i := range chunk {
			ids = append(ids, chunk[i].ID)
			if chunk[i].Key != "" {
				keys = append(keys, chunk[i].Key)
			}
		}
		found := map[ID]liveRow{}
		if err := run(build.Find(ids, keys), collectLive(found)); err != nil {
			return append(again, missing...), err
		}
		byKey := map[string]ID{}
		for _, row := range found {
			if row.key != "" {
				byKey[row.key] = row.id
			}
		}
		for _, row := range chunk {
			_, own := found[row.ID]
			other, taken := byKey[row.Key]
			switch {
			case own:
			case taken && row.Key != "":
				receipts[index[row.ID]] = Receipt{ID: other, Duplicate: true}
			default:
				again = append(again, row)
			}
		}
		missing = missing[len(chunk):]
	}
	return again, nil
}

// liveRow is what Find tells of a message in the queue.
type liveRow struct {
	id    ID
	key   string
	fence int64
}

// collectLive scans the rows of Find.
func collectLive(found map[ID]liveRow) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		var id, key []byte
		var r liveRow
		if err := rows.Scan(&id, &key, &r.fence); err != nil {
			return err
		}
		copy(r.id[:], id)
		r.key = string(key)
		found[r.id] = r
		return nil
	}
}
