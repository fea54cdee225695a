package chanqadmin

import (
	"context"
	"database/sql"
	"time"
)

// Sample is what became of a queue in one stretch of time, as Queue.History has it.
type Sample struct {
	At   time.Time     // when it begins, by the database's clock
	Step time.Duration // how long it is

	// Counted: somebody counted the messages meanwhile. The counts are the greatest that were
	// found, each bounded as those of Stats, and OldestReady the longest.
	Counted                        bool
	Ready, Scheduled, Leased, Dead int
	OldestReady                    time.Duration

	// What the programs with a producer or a consumer of the queue did, added up: who has neither
	// notes nothing, so a program that knows SendTx alone keeps a Producer besides, which
	// holds no connection while it is idle. What other programs insert is in none of these, nor
	// what a program did that had its producer or consumer for less than ten seconds.
	//
	// SendTx and AckTx count when their statement has succeeded, since nobody but the caller
	// learns of the commit. So Sent is too high by what was sent in transactions that were rolled
	// back. Acked is right where the message is settled afterwards by the holder of its lease, which takes
	// it back; where it is not, and is delivered again when the lease has ended, it is counted
	// again with that delivery.
	Sent                int64 // messages that were stored, duplicates left out
	Acked, Nacked, Died int64 // settles; Died: set aside
	Delivered           int64 // messages that were claimed, each time
	// Waited is for how long those that were delivered had been due, together.
	Waited time.Duration
}

// MeanWait is for how long a message that was delivered had been due, on average; 0 where
// none was.
func (s Sample) MeanWait() time.Duration {
	if s.Delivered == 0 {
		return 0
	}
	return s.Waited / time.Duration(s.Delivered)
}

// The steps of History, and for how long samples of each are kept: 5,760 rows a queue at most.
const (
	StepFine   = 10 * time.Second // kept for two hours
	StepMinute = time.Minute      // kept for two days
	StepHour   = time.Hour        // kept for ninety days
)

// History returns the samples of the queue that begin at since or later, oldest first, in one
// round trip. step is StepFine, StepMinute or StepHour; each has samples of its own, which are there
// as soon as something was noted in them, and the last one is still growing. Where nobody had a
// producer or a consumer there is none: no sample is not a sample of nothing. ErrNoSchema where
// the table of samples is missing, which Migrate makes.
//
// It reads no more than it returns, and takes no locks that others wait for.
func (q *Queue) History(ctx context.Context, since time.Time, step time.Duration) ([]Sample, error) {
	switch step {
	case StepFine, StepMinute, StepHour:
	default:
		return nil, q.refuse("history", "step is %v: must be %v, %v or %v", step, StepFine, StepMinute, StepHour)
	}
	var list []Sample
	err := q.once(ctx, q.sql.Samples(since.UnixMilli(), step), func(rows *sql.Rows) error {
		s := Sample{Step: step}
		err := s.scan(rows)
		list = append(list, s)
		return err
	})
	return list, q.fail("history", err)
}

func (s *Sample) scan(rows *sql.Rows) error {
	var at, waited int64
	var ready, scheduled, leased, dead, oldest sql.NullInt64
	err := rows.Scan(&at, &ready, &scheduled, &leased, &dead, &oldest, &s.Sent, &s.Acked, &s.Nacked, &s.Died, &s.Delivered, &waited)
	s.At, s.Counted = time.UnixMilli(at), ready.Valid
	s.Ready, s.Scheduled, s.Leased, s.Dead = int(ready.Int64), int(scheduled.Int64), int(leased.Int64), int(dead.Int64)
	s.OldestReady, s.Waited = time.Duration(oldest.Int64)*time.Millisecond, time.Duration(waited)*time.Millisecond
	return err
}
