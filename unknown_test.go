package chanq

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
)

// Of a chunk of rows that were looked for, the outcome of each is known, although the look for the next chunk fails.
func TestAfterALookThatFailsOnlyTheRowsThatItWasForAreOpen(t *testing.T) {
	q := openTestQueue[string](t, Config{}).core
	most := q.dialect.Traits().FindIDs
	rows := make([]sqlbatch.Row, most+1)
	for i := range rows {
		rows[i] = sqlbatch.Row{ID: NewID(), Body: []byte("x")}
	}
	require.NoError(t, q.once(t.Context(), q.sql.Enqueue(rows), nil))
	failure := &session.NotRunError{Err: context.Canceled}
	for fails, want := range map[int][]sqlbatch.Row{1: rows, 2: rows, 3: rows[most:]} {
		calls := 0
		open, err := q.enqueueNew(t.Context(), func(st sqlbatch.Statement, scan func(*sql.Rows) error) error {
			if calls++; calls == fails {
				return failure
			}
			return q.once(t.Context(), st, scan)
		}, q.sql, rows, make([]Receipt, len(rows)))
		require.ErrorIs(t, err, failure)
		require.Equal(t, want, open, "the statement %d fails", fails)
	}
}

// The INSERT before the look has ended, so a look of unknown outcome makes no outcome of a message unknown.
func TestALookOfUnknownOutcomeIsKnownToHaveStoredNothing(t *testing.T) {
	q := openTestQueue[string](t, Config{}).core
	calls := 0
	open, err := q.enqueueNew(t.Context(), func(sqlbatch.Statement, func(*sql.Rows) error) error {
		if calls++; calls == 2 {
			return context.DeadlineExceeded
		}
		return nil
	}, q.sql, []sqlbatch.Row{{ID: NewID(), Body: []byte("x")}}, make([]Receipt, 1))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Len(t, open, 1)
	require.Equal(t, sqlbatch.Unknown, q.classify(context.DeadlineExceeded))
	require.Equal(t, sqlbatch.Refused, q.classify(err))
}

// As where INSERT and look compare keys in two ways.
func TestAKeyThatTheInsertLeavesOutAndTheLookDoesNotFindIsGivenUp(t *testing.T) {
	q := openTestQueue[string](t, Config{}).core
	rows := []sqlbatch.Row{{ID: NewID(), Key: "é", Body: []byte("x")}}
	calls := 0
	began := time.Now()
	err := q.enqueue(t.Context(), func(sqlbatch.Statement, func(*sql.Rows) error) error {
		calls++
		return nil
	}, q.sql, rows, make([]Receipt, 1), true)
	require.ErrorContains(t, err, `dedup key "é"`)
	require.Equal(t, 2*keyTries, calls)
	require.Greater(t, time.Since(began), 500*time.Millisecond, "there are pauses")
	require.Equal(t, sqlbatch.BadRow, q.classify(err), "others of its group are stored")

	ctx, cancel := context.WithCancel(t.Context())
	calls = 0
	err = q.enqueue(ctx, func(sqlbatch.Statement, func(*sql.Rows) error) error {
		if calls++; calls == 3 {
			cancel()
		}
		return ctx.Err()
	}, q.sql, rows, make([]Receipt, 1), true)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 3, calls, "the end of the context ends it")
}

func TestAnAckOfUnknownOutcomeIsDoneOnlyWhileTheLeaseRuns(t *testing.T) {
	q := openTestQueue[string](t, Config{})
	p := testProducer(t, q, ProducerConfig{})
	for _, test := range []struct {
		name string
		late bool
	}{{"while it runs", false}, {"after it ran out", true}} {
		t.Run(test.name, func(t *testing.T) {
			_, err := p.Send(t.Context(), Message[string]{Body: "x"})
			require.NoError(t, err)
			c := testConsumer(t, q, ConsumerConfig{})
			delivered := <-c.C()
			l := delivered.lease
			_, err = q.Cancel(t.Context(), delivered.ID) // whoever did it, the row is gone
			require.NoError(t, err)
			require.True(t, l.Take(lease.Ack))
			if test.late {
				l.Begin(base.Now(), 0)
			}
			l.MaybeApplied = true
			require.NoError(t, c.core.settler.Add(t.Context(), l))
			err = delivered.Wait(soon(t))
			if !test.late {
				require.NoError(t, err)
				return
			}
			var op *OpError
			require.ErrorAs(t, err, &op)
			require.True(t, op.Unknown)
		})
	}
}
