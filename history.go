package chanq

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

// History says whether a program records what it does with a queue.
type History uint8

const (
	// HistoryKept makes each Queue with a producer or consumer add its counts to the table chanq__samples every 10 s: one statement
	// for three rows, or one read if it has done nothing. One of all processes also counts the messages: one Stats and one more such
	// statement per 10 s, and one DELETE of old samples per minute. A Queue without producer and consumer adds what Send, SendTx and
	// InTx stored, once, 10 s later.
	HistoryKept History = iota
	// HistoryOff: this program records nothing.
	HistoryOff
)

// sampleEvery is how often a program adds to the samples.
const sampleEvery = 10 * time.Second

// recorder counts what the producers and consumers of one Queue do, and adds it to the samples in the database: see History. It has one
// goroutine, which the first producer or consumer starts and the last one joins.
type recorder struct {
	queue *queue
	every time.Duration // sampleEvery, but for tests

	sent, acked, nacked, died, delivered atomic.Int64
	waited                               atomic.Int64 // milliseconds

	mu    sync.Mutex // guards the fields below
	users int
	end   func() // ends the goroutine, and joins it
	timed bool   // noteSoon has started a timer
}

// claimed counts the messages of a claim. Their fence has the time of the claim by the database's clock.
func (r *recorder) claimed(rows []table.Claimed) {
	waited := int64(0)
	for i := range rows {
		waited += max(0, rows[i].Item.Fence>>sqlbatch.FenceBits-rows[i].Due)
	}
	r.delivered.Add(int64(len(rows)))
	r.waited.Add(waited)
}

// settled counts stored settles.
func (r *recorder) settled(e SettledEvent) {
	r.acked.Add(int64(e.Acked))
	r.nacked.Add(int64(e.Nacked))
	r.died.Add(int64(e.Dead))
}

// take returns what was counted since the last call.
func (r *recorder) take() sqlbatch.Sample {
	return sqlbatch.Sample{
		Sent: r.sent.Swap(0), Acked: r.acked.Swap(0), Nacked: r.nacked.Swap(0), Died: r.died.Swap(0),
		Delivered: r.delivered.Swap(0), Waited: time.Duration(r.waited.Swap(0)) * time.Millisecond,
	}
}

// putBack adds counts again that were not stored.
func (r *recorder) putBack(s sqlbatch.Sample) {
	r.sent.Add(s.Sent)
	r.acked.Add(s.Acked)
	r.nacked.Add(s.Nacked)
	r.died.Add(s.Died)
	r.delivered.Add(s.Delivered)
	r.waited.Add(s.Waited.Milliseconds())
}

// join has the samples of the queue written until its caller calls leave. The last leave waits for the goroutine.
func (r *recorder) join() (leave func()) {
	if r.queue.cfg.History == HistoryOff {
		return func() {}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.users++; r.users == 1 {
		stop, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.run(stop)
		}()
		r.end = func() { cancel(); <-done }
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

// noteSoon adds the counts of sends to the samples after sampleEvery, unless a producer or consumer does it. A program that ends earlier adds
// nothing.
func (r *recorder) noteSoon() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.queue.cfg.History == HistoryOff || r.users > 0 || r.timed {
		return
	}
	r.timed = true
	time.AfterFunc(r.every, func() {
		r.mu.Lock()
		r.timed = false
		mine := r.users == 0
		r.mu.Unlock()
		if mine {
			ctx, cancel := context.WithTimeout(context.Background(), sampleTimeout)
			defer cancel()
			_, _ = r.note(ctx, true) // after an error the next note includes the counts
		}
	})
}

// sampleTimeout is the deadline of a sample, and therefore the longest time that the end of the last producer or consumer waits for one.
const sampleTimeout = 5 * time.Second

// run records a sample every 10 s, after a random first pause, until stop ends, and then the rest. If stop ends before the first
// sample, it records nothing: a program that runs so briefly should not pay for another statement.
func (r *recorder) run(stop context.Context) {
	chore := r.queue.task("history", "record")
	defer chore.End()
	thin := base.Now() // when old samples are deleted next: immediately, also in a program that is started every minute
	var unthinned error
	batch.Sleep(stop, r.every/2+rand.N(r.every/2))
	for first := true; ; first = false {
		last := stop.Err() != nil
		if last && first {
			return
		}
		of := stop
		if last {
			of = context.WithoutCancel(stop)
		}
		ctx, cancel := context.WithTimeout(of, sampleTimeout)
		counts, err := r.note(ctx, last)
		switch now := base.Now(); {
		case err != nil || now < thin:
		case !counts && now >= thin+time.Minute:
			unthinned = nil // another process does it
		case counts:
			thin, unthinned = now+time.Minute, r.queue.once(ctx, r.queue.table.SQL.Thin(), nil)
		}
		cancel()
		if err == nil { // the last error of deleting counts until the next attempt
			err = unthinned
		}
		if last {
			return
		}
		chore.Report(err)
		batch.Sleep(stop, r.every)
	}
}

// note adds the counts since the last call to the sample of now. Unless it is the last call, it also counts the messages, if no
// process has done so for this sample. If there are no counts it only reads, so that of many idle processes one writes. Counts with an
// unknown outcome are not added again. counts reports whether this process counts the messages, or would with the permission: it then
// deletes old samples.
func (r *recorder) note(ctx context.Context, last bool) (counts bool, err error) {
	s := r.take()
	if last && s == (sqlbatch.Sample{}) {
		return false, nil
	}
	known, err := r.add(ctx, s)
	if err != nil {
		if r.queue.classify(err) != sqlbatch.Unknown {
			r.putBack(s)
		}
		return false, err
	}
	if known || last {
		return false, nil
	}
	var found table.Counts
	switch err := r.queue.once(ctx, r.queue.table.SQL.Stats(table.CountLimit), found.Scan); {
	case err == nil:
	case table.IsPermanent(r.queue.classify(err)):
		return true, nil // the role of a producer may lack the permission: another process counts
	default:
		return false, err
	}
	_, err = r.add(ctx, sqlbatch.Sample{Depth: &sqlbatch.Depth{Ready: found.Ready, Scheduled: found.Scheduled, Leased: found.Leased, Dead: found.Dead, Oldest: found.OldestReady}})
	return err == nil, err
}

// add adds s, and reports whether the sample has the counts of messages already.
func (r *recorder) add(ctx context.Context, s sqlbatch.Sample) (counted bool, err error) {
	err = r.queue.once(ctx, r.queue.table.SQL.Sample(s), func(rows *sql.Rows) error {
		var step, known int
		err := rows.Scan(&step, &known)
		if step == sqlbatch.SampleSteps[0] {
			counted = known != 0
		}
		return err
	})
	return counted, err
}
