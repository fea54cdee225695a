package chanq

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
)

func TestAGroupThatIsHalfDoneHasAnUnknownOutcome(t *testing.T) {
	q := openTestQueue[string](t, Config{}).core
	rows := []sqlbatch.Row{{ID: NewID(), Body: []byte("x")}}
	calls := 0
	err := q.enqueue(t.Context(), func(sqlbatch.Statement, func(*sql.Rows) error) error {
		if calls++; calls == 1 {
			return nil // the insert: committed
		}
		return &session.NotRunError{Err: context.Canceled} // the look at what it left out
	}, q.sql, rows, make([]Receipt, 1), true)
	require.Equal(t, 2, calls)
	var half *halfDoneError
	require.ErrorAs(t, err, &half)
	require.Equal(t, sqlbatch.Unknown, q.classify(err))
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
			lease := <-c.C()
			l := lease.lease
			_, err = q.Cancel(t.Context(), lease.ID) // whoever did it, the row is gone
			require.NoError(t, err)
			l.state.Store(leaseSettling)
			if test.late {
				l.deadline.Store(int64(monotonic()))
			}
			l.unknown = true
			require.NoError(t, c.core.settler.add(t.Context(), l))
			err = lease.Wait(soon(t))
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
