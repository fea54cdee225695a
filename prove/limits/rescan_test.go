package limits_test

import (
	"context"
	"database/sql"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/pgtest"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/postgres"
)

// stopwatch is a pgx tracer that measures how long statements take, by their text.
type stopwatch struct {
	mu    sync.Mutex
	times map[string][]time.Duration
}

type begun struct {
	text string
	at   time.Time
}

type begunKey struct{}

func (s *stopwatch) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	return context.WithValue(ctx, begunKey{}, begun{data.SQL, time.Now()})
}

func (s *stopwatch) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	b := ctx.Value(begunKey{}).(begun)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.times == nil {
		s.times = map[string][]time.Duration{}
	}
	s.times[b.text] = append(s.times[b.text], time.Since(b.at))
}

// of returns the durations of a statement, skipping the first since of them.
func (s *stopwatch) of(st sqlbatch.Statement, since int) []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.times[st.Text][since:])
}

func sum(times []time.Duration) (all time.Duration) {
	for _, d := range times {
		all += d
	}
	return all
}

// An open snapshot keeps many dead entries at the beginning of the queue. Claims do not read them.
// Rescans do, but all consumers together spend only 5 % of the time on that.
func TestOnPostgreSQLRescansOfManyDeadEntriesTake5PercentOfTheTime(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	t.Parallel()
	const consumers, dead, window = 4, 200_000, 8 * time.Second
	config := pgtest.Config(t)
	plain := stdlib.OpenDB(*config) // not measured
	defer plain.Close()
	watch := &stopwatch{}
	config.Tracer = watch
	db := stdlib.OpenDB(*config)
	defer db.Close()
	ctx, cancel := context.WithTimeout(t.Context(), testdb.Bound)
	defer cancel()
	cfg := chanq.Config{VacuumEvery: time.Hour}
	require.NoError(t, chanq.Migrate(ctx, db, "work", cfg))
	exec := func(text string, args ...any) {
		_, err := db.ExecContext(ctx, text, args...)
		require.NoError(t, err)
	}
	exec(`ALTER TABLE chanq_work SET (autovacuum_enabled = off)`)
	snapshot, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	require.NoError(t, err)
	defer snapshot.Rollback()
	_, err = snapshot.Exec(`SELECT count(*) FROM chanq_work`)
	require.NoError(t, err)
	st := postgres.Dialect.Queue(sqlbatch.Names{Queue: "work"})
	for took := time.Duration(0); took < 30*time.Millisecond; { // again on a faster machine
		exec(`INSERT INTO chanq_work (due_at, body) SELECT i, '' FROM generate_series(1, $1) AS i`, dead)
		exec(`DELETE FROM chanq_work`)
		began := time.Now()
		_, err := testdb.Rows(ctx, plain, st.Rescan())
		require.NoError(t, err)
		took = time.Since(began)
	}

	q, err := chanq.Open[string](ctx, db, "work", cfg)
	require.NoError(t, err)
	for range consumers {
		c := testdb.Start(t, q, chanq.ConsumerConfig{})
		go func() { // ends with the consumer
			for l := range c.C() {
				_ = l.Ack()
			}
		}()
	}
	p := testdb.Produce(t, q, chanq.ProducerConfig{})
	rescan, claim := st.Rescan(), st.Claim(sqlbatch.ClaimParams{})
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	sendUntil := func(is func() bool) {
		for !is() {
			_, err := p.Send(ctx, chanq.Message[string]{Body: "on"})
			require.NoError(t, err)
			<-tick.C
		}
	}
	sendUntil(func() bool { return len(watch.of(rescan, 0)) >= 2*consumers }) // all consumers have joined
	rescansBefore, claimsBefore, began := len(watch.of(rescan, 0)), len(watch.of(claim, 0)), time.Now()
	sendUntil(func() bool { // rescans are slow and rare on a slow machine
		return time.Since(began) >= window && len(watch.of(rescan, 0)) > rescansBefore
	})
	passed, rescans, claims := time.Since(began), watch.of(rescan, rescansBefore), watch.of(claim, claimsBefore)
	slices.Sort(claims)
	longest, median := slices.Max(watch.of(rescan, 0)), claims[len(claims)/2]
	t.Logf("in %v %d rescans took %v, the longest %v; %d claims, half of them less than %v each", passed, len(rescans), sum(rescans), longest, len(claims), median)
	require.Greater(t, longest, 20*time.Millisecond, "a rescan is expensive in this test")
	require.Less(t, median, longest/4, "claims begin at the head")
	require.LessOrEqual(t, sum(rescans), passed/20+consumers*longest, "plus one rescan per consumer, whose pause is after the window")
}
