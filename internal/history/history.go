// Package history adds what a program does with a queue to the samples in the database.
//
// # Goroutines
//
// A Recorder has one while a producer or a consumer uses it. The first Join starts it, and the end of the last one
// joins it. Without a Join, Add starts a timer.
//
// # Locks
//
// The lock of the Recorder is held briefly. No statement runs under it.
package history

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

const (
	// Every is how often a program adds to the samples.
	Every = 10 * time.Second
	// timeout is the timeout of a sample, and therefore the maximum time that the end of the last producer or consumer
	// waits for one.
	timeout = 5 * time.Second
	// thinEvery is the interval at which one of all processes deletes old samples.
	thinEvery = 6 * Every
)

// Recorder counts what a program does with one queue, and adds it to the samples. It is safe for concurrent use.
type Recorder struct {
	Off   bool // nothing is recorded
	Table *table.Queue
	Run   func(ctx context.Context, st sqlbatch.Statement, scan func(*sql.Rows) error) error
	Task  func() *base.Task // of the Housekeeping hook
	Every time.Duration     // Every, except in tests

	mu     sync.Mutex // guards the fields below
	counts sqlbatch.Sample
	users  int    // calls of Join without their end
	end    func() // ends the goroutine, and joins it
	timed  bool   // Add has started a timer

	calls [len(sqlbatch.Times{})]atomic.Int64 // of handlers, by their time, until Take
}

// Add adds counts. If no producer or consumer has joined, they are stored after Every; a program that ends earlier
// stores nothing.
func (r *Recorder) Add(s sqlbatch.Sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(s)
	if r.Off || r.users > 0 || r.timed {
		return
	}
	r.timed = true
	time.AfterFunc(r.Every, func() {
		r.mu.Lock()
		r.timed = false
		mine := r.users == 0
		r.mu.Unlock()
		if mine {
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			defer cancel()
			_, _ = r.note(ctx, false) // after an error the next sample includes the counts
		}
	})
}

// add adds counts. mu is held.
func (r *Recorder) add(s sqlbatch.Sample) {
	c := &r.counts
	c.Sent += s.Sent
	c.Acked += s.Acked
	c.Nacked += s.Nacked
	c.Died += s.Died
	c.Delivered += s.Delivered
	for i, n := range s.Times {
		c.Times[i] += n
	}
}

// Called counts a call of a handler. It takes no lock: it is called for each message.
func (r *Recorder) Called(took time.Duration) { r.calls[sqlbatch.TimesOf(took)].Add(sqlbatch.OneCall) }

// Claimed counts the messages of a claim, by how long they had been due. On a plain queue the fence contains the time
// of the claim by the database's clock. On an ordered queue a message is claimed when it is delivered, and the time is
// that of this program's clock.
func (r *Recorder) Claimed(rows []table.Claimed) {
	now, s := time.Now().UnixMilli(), sqlbatch.Sample{Delivered: int64(len(rows))}
	for i := range rows {
		at := now
		if !r.Table.Ordered {
			at = rows[i].Item.Fence >> sqlbatch.FenceBits
		}
		if due := rows[i].Due; due > 0 { // 0: a message that was not read, because it is dead-lettered
			s.Times[sqlbatch.TimesOf(time.Duration(at-due)*time.Millisecond)] += sqlbatch.OneWait
		}
	}
	r.Add(s)
}

// Take returns the counts since the last call.
func (r *Recorder) Take() sqlbatch.Sample {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.counts
	r.counts = sqlbatch.Sample{}
	for i := range r.calls {
		s.Times[i] += r.calls[i].Swap(0)
	}
	return s
}

// Join starts the writing of samples, until leave is called. The last leave waits for the goroutine.
func (r *Recorder) Join() (leave func()) {
	if r.Off {
		return func() {}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.users++; r.users == 1 {
		stop, cancel := context.WithCancel(context.Background())
		var running base.Group
		running.Go(func() { r.run(stop) })
		r.end = func() { cancel(); running.Wait() }
	}
	return sync.OnceFunc(func() {
		r.mu.Lock()
		end := func() {}
		if r.users--; r.users == 0 {
			end = r.end
		}
		r.mu.Unlock()
		end()
	})
}

// run records a sample every 10 s, after a random first pause, until stop ends, and then the rest. If stop ends before
// the first sample, it records nothing: such a short program should not pay for another statement.
func (r *Recorder) run(stop context.Context) {
	task := r.Task()
	defer task.End()
	thin := base.Now() // when old samples are deleted next: immediately, even in a program that is started every minute
	var unthinned error
	// In each period of Every at the same time, however long statements take: each sample of a steady program has the
	// counts of one period. Not near the end of a period, since two clocks differ.
	phase := r.Every/10 + rand.N(r.Every*4/5)
	batch.Sleep(stop, r.until(phase))
	for first := true; ; first = false {
		last := stop.Err() != nil
		if last && first {
			return
		}
		of := stop
		if last {
			of = context.WithoutCancel(stop)
		}
		ctx, cancel := context.WithTimeout(of, timeout)
		counts, err := r.note(ctx, last)
		if now := base.Now(); err == nil && now >= thin {
			switch {
			case counts:
				thin, unthinned = now+thinEvery, r.Run(ctx, r.Table.SQL.Thin(), nil)
			case now >= thin+thinEvery:
				unthinned = nil // another process does it
			}
		}
		cancel()
		if err == nil { // the last error of deleting counts until the next attempt
			err = unthinned
		}
		if last {
			return
		}
		task.Report(err)
		batch.Sleep(stop, r.until(phase))
	}
}

// until returns the time until the next phase of a period.
func (r *Recorder) until(phase time.Duration) time.Duration {
	return r.Every - (time.Duration(time.Now().UnixNano())-phase)%r.Every
}

// note adds the counts since the last call to the current sample. Unless it is the last call, it also counts the
// messages, if no process has done so for this sample. Without counts it only reads, so that only one of many idle
// processes writes. Counts with an unknown outcome are not added again. counts reports whether this process counts the
// messages, or would with the permission: it then deletes old samples.
func (r *Recorder) note(ctx context.Context, last bool) (counts bool, err error) {
	s := r.Take()
	if last && s == (sqlbatch.Sample{}) {
		return false, nil
	}
	known, err := r.Store(ctx, s)
	if err != nil {
		if r.Table.Classify(err) != sqlbatch.Unknown {
			r.mu.Lock()
			r.add(s)
			r.mu.Unlock()
		}
		return false, err
	}
	if known || last {
		return false, nil
	}
	var found table.Counts
	switch err := r.Run(ctx, r.Table.SQL.Stats(table.CountLimit), found.Scan); {
	case err == nil:
	case table.IsPermanent(r.Table.Classify(err)):
		return true, nil // the role of a producer might lack the permission: another process counts
	default:
		return false, err
	}
	depth := sqlbatch.Depth{Ready: found.Ready, Scheduled: found.Scheduled, Leased: found.Leased, Dead: found.Dead,
		Oldest: found.OldestReady}
	_, err = r.Store(ctx, sqlbatch.Sample{Depth: &depth})
	return err == nil, err
}

// Store adds s to the samples, and reports whether the current sample already has the counts of messages.
func (r *Recorder) Store(ctx context.Context, s sqlbatch.Sample) (counted bool, err error) {
	err = r.Run(ctx, r.Table.SQL.Sample(s), func(rows *sql.Rows) error {
		var step, known int
		err := rows.Scan(&step, &known)
		if step == sqlbatch.SampleSteps[0] {
			counted = known != 0
		}
		return err
	})
	return counted, err
}
