package sqlserver_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// However many messages an operator deletes, and even if no ghost is cleaned up meanwhile, a step reads the rows that
// it deletes, and at most those that were due in the same millisecond.
func TestAStepOfAPurgeReadsNothingOfTheStepsBefore(t *testing.T) {
	t.Parallel()
	const step, steps, together = 400, 10, 500
	for state, delay := range map[sqlbatch.State]time.Duration{sqlbatch.Ready: 0, sqlbatch.Scheduled: time.Hour, sqlbatch.Leased: 0} {
		t.Run(string(state), func(t *testing.T) {
			t.Parallel()
			r := &reader{queue: newQueue(t, mssqltest.Options{Clock: mssqltest.Stopped(), ReadCommittedSnapshot: true, KeepGhosts: true})}
			r.store(step*steps, delay)
			if state == sqlbatch.Leased {
				r.claimAll(step*steps, 100*time.Hour)
			}
			w := sqlbatch.Window{}
			for range steps {
				r.ResetQueryStats()
				rows := r.rows(r.Purge(state, step, w))
				require.Len(t, rows, step)
				keys := cost(r.queue, "AS place").KeysRead
				require.LessOrEqual(t, keys, int64(3*step+together))
				require.GreaterOrEqual(t, keys, int64(3*step), "an entry of each, a row to lock, and one to delete")
				w = after(w, rows)
			}
			require.Empty(t, r.rows(r.Purge(state, step, w)))
		})
	}
}

// after returns the window behind the last of the rows.
func after(w sqlbatch.Window, rows [][]any) sqlbatch.Window {
	for _, row := range rows {
		id, at := suite.IDOf(row[0]), row[1].(int64)
		if at > w.After || at == w.After && string(id[:]) > string(w.AfterID[:]) {
			w.After, w.AfterID = at, id
		}
	}
	return w
}

func TestAStepOfATrimOrARedriveReadsNothingOfTheStepsBefore(t *testing.T) {
	t.Parallel()
	const step, steps, together = 400, 5, 500
	for name, c := range map[string]struct {
		end  func(r *reader, items []sqlbatch.Item)
		next func(r *reader, w sqlbatch.Window) sqlbatch.Statement
		each int64 // keys per message
	}{
		"trim": {
			func(r *reader, items []sqlbatch.Item) {
				r.rows(r.Archive(items[:step/2]))
				r.rows(r.Archive(items[step/2:]))
			},
			func(r *reader, w sqlbatch.Window) sqlbatch.Statement {
				return r.Trim(sqlbatch.Done, time.Millisecond, step, w.After)
			},
			1,
		},
		"purge dead": {
			func(r *reader, items []sqlbatch.Item) { r.deadLetter(items) },
			func(r *reader, w sqlbatch.Window) sqlbatch.Statement { return r.Purge(sqlbatch.Dead, step, w) },
			3, // its entry, its row to lock, and the same row to delete
		},
		"redrive": {
			func(r *reader, items []sqlbatch.Item) { r.deadLetter(items) },
			func(r *reader, w sqlbatch.Window) sqlbatch.Statement { return r.Redrive(step, nil, w) },
			8,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &reader{queue: newQueue(t, mssqltest.Options{Clock: mssqltest.Stopped(), ReadCommittedSnapshot: true, KeepGhosts: true})}
			r.store(step*steps, 0)
			for left := step * steps; left > 0; left -= step {
				c.end(r, r.claim(step, time.Hour))
				r.Clock().Advance(time.Second)
			}
			w := sqlbatch.Window{Before: 1 << 42}
			var keys []int64
			for range steps {
				r.ResetQueryStats()
				rows := r.rows(c.next(r, w))
				require.Len(t, rows, step)
				keys = append(keys, cost(r.queue, "").KeysRead)
				w = after(w, rows)
			}
			t.Logf("keys of each step of %d: %v", step, keys)
			for _, n := range keys {
				require.LessOrEqual(t, n, c.each*step+together)
			}
		})
	}
}

// deadLetter dead-letters leased messages.
func (r *reader) deadLetter(items []sqlbatch.Item) {
	r.t.Helper()
	most := sqlserver.Dialect.Traits().DeadLetterItems
	for ; len(items) > 0; items = items[min(most, len(items)):] {
		list := make([]sqlbatch.DeadLetterItem, min(most, len(items)))
		for i := range list {
			list[i] = sqlbatch.DeadLetterItem{Item: items[i], Error: "spent"}
		}
		require.Len(r.t, r.rows(r.DeadLetter(list)), len(list))
	}
}
