package chanq_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/internal/testdb/pgtest"
)

// within bounds a test.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestPostgresEndToEnd(t *testing.T) {
	ctx := within(t, time.Minute)
	db := pgtest.Open(t)
	cfg := chanq.Config{Retain: time.Hour, MaxAttempts: 2}

	_, err := chanq.Open[string](ctx, db, "orders", cfg)
	require.ErrorIs(t, err, chanq.ErrNoSchema)
	for range 2 {
		require.NoError(t, chanq.Migrate(ctx, db, "orders", cfg))
	}
	q, err := chanq.Open[string](ctx, db, "orders", cfg)
	require.NoError(t, err)
	p, err := q.Producer(chanq.ProducerConfig{})
	require.NoError(t, err)

	const n = 2500
	batch := make([]chanq.Message[string], n)
	for i := range batch {
		batch[i] = chanq.Message[string]{Body: fmt.Sprintf("body %d ÿ \\ \" '", i), Headers: map[string]string{"i": fmt.Sprint(i)}}
	}
	_, err = p.SendBatch(ctx, batch...)
	require.NoError(t, err)

	c, err := q.Consume(ctx, chanq.ConsumerConfig{Backoff: func(int) time.Duration { return 0 }})
	require.NoError(t, err)
	nacked := errors.New("not now: \x00 and \xff are no text")
	seen := 0
	for seen < n {
		l := <-c.C()
		switch i := l.Headers["i"]; {
		case i == "7" && l.Attempt == 1:
			require.NoError(t, l.Nack(0, nacked))
		default:
			require.Equal(t, fmt.Sprintf("body %s ÿ \\ \" '", i), l.Body)
			require.NoError(t, l.Ack())
			seen++
		}
	}
	require.NoError(t, c.Flush(ctx))
	stats, err := q.Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, chanq.Stats{Done: n, Limit: stats.Limit}, stats)
	done, err := q.Peek(ctx, chanq.StateDone, 1000)
	require.NoError(t, err)
	require.Len(t, done, 1000)

	_, err = p.Send(ctx, chanq.Message[string]{Body: "poison"})
	require.NoError(t, err)
	l := <-c.C()
	require.NoError(t, l.DeadLetter(nacked))
	require.NoError(t, l.Wait(ctx))
	dead, err := q.Peek(ctx, chanq.StateDead, 10)
	require.NoError(t, err)
	require.Len(t, dead, 1)
	require.Equal(t, "not now: � and � are no text", dead[0].LastError)
	moved, err := q.Redrive(ctx, 0)
	require.NoError(t, err)
	require.Equal(t, 1, moved)
	l = <-c.C()
	require.Equal(t, "poison", l.Body)
	require.NoError(t, l.Ack())
	require.NoError(t, c.Shutdown(ctx))
	require.NoError(t, p.Close(ctx))
}

func TestPostgresDuplicateKeyIsReportedByReceipt(t *testing.T) {
	ctx := within(t, time.Minute)
	db := pgtest.Open(t)
	require.NoError(t, chanq.Migrate(ctx, db, "orders", chanq.Config{}))
	q, err := chanq.Open[string](ctx, db, "orders", chanq.Config{})
	require.NoError(t, err)
	p, err := q.Producer(chanq.ProducerConfig{})
	require.NoError(t, err)
	key := `{"\, ` + strings.Repeat("k", 100)

	first, err := p.Send(ctx, chanq.Message[string]{Body: "a", DedupKey: key})
	require.NoError(t, err)
	second, err := p.Send(ctx, chanq.Message[string]{Body: "b", DedupKey: key})
	require.NoError(t, err)

	require.False(t, first.Duplicate)
	require.Equal(t, chanq.Receipt{ID: first.ID, Duplicate: true}, second)
	require.NoError(t, p.Close(ctx))
}

func TestPostgresTransactionsOfTheCaller(t *testing.T) {
	ctx := within(t, time.Minute)
	db := pgtest.Open(t)
	require.NoError(t, chanq.Migrate(ctx, db, "orders", chanq.Config{}))
	q, err := chanq.Open[string](ctx, db, "orders", chanq.Config{})
	require.NoError(t, err)

	send := func(body string) (commit, rollback func() error) {
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		_, err = q.SendTx(ctx, tx, chanq.Message[string]{Body: body})
		require.NoError(t, err)
		return tx.Commit, tx.Rollback
	}
	_, rollback := send("rolled back")
	require.NoError(t, rollback())
	commit, _ := send("kept")
	require.NoError(t, commit())
	leases, err := q.TryLease(ctx, 10, time.Minute)
	require.NoError(t, err)
	require.Len(t, leases, 1)
	require.Equal(t, "kept", leases[0].Body)

	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	require.NoError(t, leases[0].AckTx(ctx, tx))
	require.NoError(t, tx.Rollback())
	_, err = q.Get(ctx, leases[0].ID)
	require.NoError(t, err, "the ack was rolled back")
	tx, err = db.BeginTx(ctx, nil)
	require.NoError(t, err)
	require.NoError(t, leases[0].AckTx(ctx, tx))
	require.NoError(t, tx.Commit())
	_, err = q.Get(ctx, leases[0].ID)
	require.ErrorIs(t, err, chanq.ErrNotFound)
}

// now() would be the start of the transaction: a delay would be over before it
// began.
func TestPostgresDelayCountsFromTheSendNotFromTheTransaction(t *testing.T) {
	ctx := within(t, time.Minute)
	db := pgtest.Open(t)
	require.NoError(t, chanq.Migrate(ctx, db, "orders", chanq.Config{}))
	q, err := chanq.Open[string](ctx, db, "orders", chanq.Config{})
	require.NoError(t, err)
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	_, err = tx.Exec("SELECT pg_sleep(0.3)")
	require.NoError(t, err)
	var before int64
	require.NoError(t, tx.QueryRow("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint").Scan(&before))

	receipts, err := q.SendTx(ctx, tx, chanq.Message[string]{Body: "x", Delay: 250 * time.Millisecond})
	require.NoError(t, err)
	require.NoError(t, tx.Commit())

	e, err := q.Get(ctx, receipts[0].ID)
	require.NoError(t, err)
	require.GreaterOrEqual(t, e.At.UnixMilli(), before+250)
}

func TestPostgresPipeReplacesInputsByOutputs(t *testing.T) {
	ctx := within(t, time.Minute)
	db := pgtest.Open(t)
	var stages [2]*chanq.Queue[string]
	var producers [2]*chanq.Producer[string]
	for i, name := range []string{"first", "second"} {
		require.NoError(t, chanq.Migrate(ctx, db, name, chanq.Config{}))
		var err error
		stages[i], err = chanq.Open[string](ctx, db, name, chanq.Config{})
		require.NoError(t, err)
		producers[i], err = stages[i].Producer(chanq.ProducerConfig{})
		require.NoError(t, err)
	}
	var want []string
	for i := range 100 {
		_, err := producers[0].Send(ctx, chanq.Message[string]{Body: fmt.Sprint(i)})
		require.NoError(t, err)
		want = append(want, fmt.Sprintf("%d!", i))
	}
	in, err := stages[0].Consume(ctx, chanq.ConsumerConfig{})
	require.NoError(t, err)
	piped := make(chan error, 1)
	go func() {
		piped <- chanq.Pipe(in, producers[1], 4, func(_ context.Context, l *chanq.Lease[string]) ([]chanq.Message[string], error) {
			return []chanq.Message[string]{{Body: l.Body + "!"}}, nil
		})
	}()
	out, err := stages[1].Consume(ctx, chanq.ConsumerConfig{})
	require.NoError(t, err)
	var got []string
	for len(got) < len(want) {
		l := <-out.C()
		got = append(got, l.Body)
		require.NoError(t, l.Ack())
	}
	slices.Sort(got)
	slices.Sort(want)
	require.Equal(t, want, got)
	in.Stop()
	require.NoError(t, <-piped)
	require.NoError(t, in.Shutdown(ctx))
	require.NoError(t, out.Shutdown(ctx))
	for i, q := range stages {
		require.NoError(t, producers[i].Close(ctx))
		stats, err := q.Stats(ctx)
		require.NoError(t, err)
		require.Equal(t, chanq.Stats{Limit: stats.Limit}, stats)
	}
}
