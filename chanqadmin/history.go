package chanqadmin

import (
	"context"
	"database/sql"
	"math"
	"time"

	"github.com/chanq/chanq/sqlbatch"
)

// Sample describes the activity of a queue in one period.
type Sample struct {
	At   time.Time     // when it begins, by the database's clock
	Step time.Duration // its length

	// Counted: a program has counted the messages in the period. The counts are the maxima of the period, each bounded as in Stats.
	// OldestReady is also the maximum.
	Counted                        bool
	Ready, Scheduled, Leased, Dead int
	OldestReady                    time.Duration

	// Sums of the operations of programs on the queue through chanq. They omit inserts by other programs. They also omit operations of
	// a program whose producer or consumer existed for less than 10 s, or that ended less than 10 s after Queue.Send or SendTx.
	//
	// In transactions of InTx, SendTx and AckTx count after the commit. In other transactions they count at the call, since only the
	// caller knows of the commit, so Sent and Acked also include messages of transactions that were rolled back.
	Sent                int64 // messages that were stored, without duplicates
	Acked, Nacked, Died int64 // settles; Died: dead-lettered
	Delivered           int64 // claims of messages
	// Waits has how long the delivered messages had been due: until the claim, by the database's clock. On an ordered queue it is until the
	// delivery, by the clock of the program, so that the wait for earlier messages of the key counts.
	Waits Times
	// Calls has how long calls of handlers took: see chanq.HandledEvent.Took. Each message of a batch counts with the time of the batch.
	// Messages that you take from Consumer.C and settle yourself have no call.
	Calls Times
}

// Times counts durations by their length. The first count is of those below 1 ms, and the next ones of those below 2, 4, 8 ms and so on.
// The last one includes all from 3 days on. Times of several periods or queues add up.
type Times [len(sqlbatch.Times{})]int64

// Add adds the counts of o.
func (t *Times) Add(o Times) {
	for i, n := range o {
		t[i] += n
	}
}

// Quantile returns the time that a share of the durations does not exceed: 0.95 returns the p95. It is exact to a factor of 2, and rounded
// up to milliseconds. Without durations it returns 0.
func (t Times) Quantile(share float64) time.Duration {
	var all int64
	for _, n := range t {
		all += n
	}
	rank := share * float64(all)
	for i, n := range t {
		if rank -= float64(n); n > 0 && rank <= 0 {
			low, high := float64(int64(1)<<i>>1), float64(int64(1)<<i)
			return time.Duration(math.Ceil(high+(high-low)*rank/float64(n))) * time.Millisecond
		}
	}
	return 0
}

// The steps of History, and how long the samples of each step are kept: at most 5,760 rows per queue.
const (
	StepFine   = 10 * time.Second // kept for two hours
	StepMinute = time.Minute      // kept for two days
	StepHour   = time.Hour        // kept for ninety days
)

// History returns the samples of the queue that begin at since or later, oldest first, in one round trip. step is StepFine, StepMinute
// or StepHour; each has its own samples, and the last sample still grows. There is no sample for a period in which no program recorded
// anything, although there may have been messages: producers and consumers do, and programs that show the queue (see Record). If the table of samples, which Migrate creates, is missing, History returns
// ErrNoSchema.
//
// It reads only what it returns, and takes no locks that block other statements.
func (q *Queue) History(ctx context.Context, since time.Time, step time.Duration) ([]Sample, error) {
	switch step {
	case StepFine, StepMinute, StepHour:
	default:
		return nil, q.refuse("history", "step is %v: must be %v, %v or %v", step, StepFine, StepMinute, StepHour)
	}
	return collect(ctx, q, "history", q.sql.Samples(since.UnixMilli(), step), func(rows *sql.Rows) (Sample, error) {
		s := Sample{Step: step}
		err := s.scan(rows)
		return s, err
	})
}

// Record adds counts that Stats has returned just now to the history. It writes only if no program has counted the messages in the current
// sample of StepFine, and on PostgreSQL only if the role has the permission, so that several programs may call it as often as they like. It is
// for programs that show a queue: without a producer or a consumer the history has no other counts. chanqfindings.Look calls it. It costs one
// or two round trips.
func (q *Queue) Record(ctx context.Context, s Stats) error {
	var step int
	var counted bool
	err := q.once(ctx, q.sql.Sample(sqlbatch.Sample{}), func(rows *sql.Rows) error { return rows.Scan(&step, &counted) })
	if err == nil && !counted {
		depth := sqlbatch.Depth{Ready: s.Ready, Scheduled: s.Scheduled, Leased: s.Leased, Dead: s.Dead, Oldest: s.OldestReady}
		err = q.once(ctx, q.sql.Sample(sqlbatch.Sample{Depth: &depth}), nil)
	}
	return q.fail("record", err)
}

func (s *Sample) scan(rows *sql.Rows) error {
	var at int64
	var ready, scheduled, leased, dead, oldest sql.NullInt64
	var times sqlbatch.Times
	into := []any{&at, &ready, &scheduled, &leased, &dead, &oldest, &s.Sent, &s.Acked, &s.Nacked, &s.Died, &s.Delivered}
	for i := range times {
		into = append(into, &times[i])
	}
	err := rows.Scan(into...)
	for i, n := range times {
		s.Waits[i], s.Calls[i] = n/sqlbatch.OneWait, n%sqlbatch.OneWait
	}
	s.At, s.Counted = time.UnixMilli(at), ready.Valid
	s.Ready, s.Scheduled, s.Leased, s.Dead = int(ready.Int64), int(scheduled.Int64), int(leased.Int64), int(dead.Int64)
	s.OldestReady = time.Duration(oldest.Int64) * time.Millisecond
	return err
}
