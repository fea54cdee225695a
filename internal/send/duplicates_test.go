package send_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/send"
	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

func inserts(f *fake) send.Inserts { return send.Inserts{Insert: f, Classify: classify, FindIDs: 100} }

func rowsOf(first, last int) (rows []sqlbatch.Row) {
	for n := first; n <= last; n++ {
		rows = append(rows, sqlbatch.Row{ID: idOf(n)})
	}
	return rows
}

// For rows that were looked up before a failed query, the outcome is known, although the query for the next rows
// fails.
func TestAfterALookThatFailsOnlyTheRowsThatItWasForAreOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rows := rowsOf(0, 100)
		failure := &session.NotRunError{Err: context.Canceled}
		for fails, want := range map[int][]sqlbatch.Row{1: rows, 2: rows, 3: rows[100:]} {
			f := newFake(t)
			_, err := f.commit("", rows, false) // they exist already
			require.NoError(t, err)
			calls := 0
			f.failing(func(string, []sqlbatch.Row) error {
				if calls++; calls == fails {
					return failure
				}
				return nil
			}, nil)
			open, err := inserts(f).StoreNew(t.Context(), rows, make([]send.Receipt, len(rows)))
			require.ErrorIs(t, err, failure)
			require.Equal(t, want, open, "statement %d fails", fails)
		}
	})
}

// The INSERT before the query has ended, so a query of unknown outcome makes no outcome of a message unknown.
func TestALookOfUnknownOutcomeIsKnownToHaveStoredNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		_, err := f.commit("", rowsOf(1, 1), false)
		require.NoError(t, err)
		f.failing(func(op string, _ []sqlbatch.Row) error {
			if op == "find" {
				return context.DeadlineExceeded
			}
			return nil
		}, nil)
		open, err := inserts(f).StoreNew(t.Context(), rowsOf(1, 1), make([]send.Receipt, 1))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Len(t, open, 1)
		var notRun *session.NotRunError
		require.ErrorAs(t, err, &notRun)
	})
}

// This happens if the INSERT and the query compare keys differently.
func TestAKeyThatTheInsertLeavesOutAndTheLookDoesNotFindIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.blind = true
		f.keys["é"] = idOf(9)
		rows := []sqlbatch.Row{{ID: idOf(1), Key: "é"}}
		began := time.Now()
		err := inserts(f).Store(t.Context(), rows, make([]send.Receipt, 1), true)
		require.ErrorContains(t, err, `dedup key "é"`)
		require.Len(t, f.calls, 20, "ten tries")
		require.Greater(t, time.Since(began), 500*time.Millisecond, "there are pauses")
		require.Equal(t, sqlbatch.BadRow, classify(err), "the rest of its batch is stored")

		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		f.failing(func(string, []sqlbatch.Row) error {
			if calls++; calls == 3 {
				cancel()
			}
			return ctx.Err()
		}, nil)
		require.ErrorIs(t, inserts(f).Store(ctx, rows, make([]send.Receipt, 1), true), context.Canceled)
		require.Equal(t, 3, calls, "the end of the context ends it")
	})
}

func TestWhatComesBehindADedupKeyWithItsKeyIsAStatementOfItsOwn(t *testing.T) {
	of := func(r *sqlbatch.Row) (*sqlbatch.Row, int, bool) { return r, len(r.Body), false }
	rows := []sqlbatch.Row{{OrderKey: "a"}, {OrderKey: "a", Key: "1"}, {OrderKey: "b"}, {Key: "2"}, {}, {OrderKey: "a"}}
	require.Equal(t, 5, send.Cut(rows, 500, 1<<20, of))
	require.Equal(t, 1, send.Cut([]sqlbatch.Row{{Key: "1"}, {Key: "1"}}, 500, 1<<20, of), "no key twice")
	require.Equal(t, 2, send.Cut(rows, 2, 1<<20, of))
	big := []sqlbatch.Row{{Body: make([]byte, 100)}, {Body: make([]byte, 10)}}
	require.Equal(t, 1, send.Cut(big, 500, 50, of), "at least one")
}

// leftOut is a table whose message with the key "k" is leased when the first INSERT meets it.
type leftOut struct {
	send.Insert
	calls []string
}

func (l *leftOut) EnqueueNew(_ context.Context, rows []sqlbatch.Row) ([]table.Live, error) {
	l.calls = append(l.calls, "insert new")
	if len(l.calls) == 1 {
		return nil, nil
	}
	return []table.Live{{ID: rows[0].ID, Key: "k"}}, nil
}

func (l *leftOut) Find(context.Context, [][16]byte, []string) ([]table.Live, error) {
	l.calls = append(l.calls, "find")
	return []table.Live{{ID: idOf(9), Key: "k"}}, nil
}

// Its handler might have read the state before the send.
func TestARowWhoseMessageWasLeasedMeanwhileIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for does := sqlbatch.KeepFirst; does <= sqlbatch.Debounce; does++ {
			l, receipts := &leftOut{}, make([]send.Receipt, 1)
			rows := []sqlbatch.Row{{ID: idOf(1), Key: "k", OnDuplicate: does}}
			_, err := send.Inserts{Insert: l, Classify: classify, FindIDs: 100}.StoreNew(t.Context(), rows, receipts)
			require.NoError(t, err)
			if does == sqlbatch.KeepFirst {
				require.Equal(t, []send.Receipt{{ID: idOf(9), Duplicate: true}}, receipts)
				continue
			}
			require.Equal(t, []string{"insert new", "find", "insert new"}, l.calls, does)
			require.Equal(t, make([]send.Receipt, 1), receipts, does)
		}
	})
}

func TestAStatementHasOneOnDuplicate(t *testing.T) {
	of := func(r *sqlbatch.Row) (*sqlbatch.Row, int, bool) { return r, len(r.Body), false }
	row := sqlbatch.Row{OnDuplicate: sqlbatch.Debounce, DebounceMax: 1}
	first, second := row, row
	first.Key, second.Key = "1", "2"
	rows := []sqlbatch.Row{first, {}, second}
	for _, next := range []sqlbatch.Row{
		{Key: "3"}, {Key: "3", OnDuplicate: sqlbatch.Replace},
		{Key: "3", OnDuplicate: sqlbatch.Debounce, DebounceMax: 2},
	} {
		require.Equal(t, 3, send.Cut(append(rows, next), 500, 1<<20, of))
	}
	require.Equal(t, 4, send.Cut(append(rows, sqlbatch.Row{}), 500, 1<<20, of), "without a key it may be in any")
}
