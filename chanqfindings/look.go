package chanqfindings

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
)

// Queue is what Look reads: a *chanqadmin.Queue.
type Queue interface {
	Name() string
	Opened() (chanq.Spec, chanq.ShardMark)
	Now(context.Context) (time.Time, error)
	Locks(context.Context) ([]chanqadmin.Lock, error)
	Stats(context.Context) (chanqadmin.Stats, error)
	Consumers(context.Context) ([]chanqadmin.ConsumerInfo, error)
	Paused(context.Context) (chanqadmin.Pause, error)
	History(ctx context.Context, since time.Time, step time.Duration) ([]chanqadmin.Sample, error)
	List(context.Context, chanqadmin.Select, chanqadmin.List) (chanqadmin.Page, error)
	Record(context.Context, chanqadmin.Stats) error
}

// Figures are what Look has read of a queue.
type Figures struct {
	Queue string
	At    time.Time // when they were read, by the clock of this program
	// Err is why they could not be read. Locks and Queue are set even then, and the others are not.
	Err   error
	Locks []chanqadmin.Lock

	Now       time.Time // by the clock of the database
	Spec      chanq.Spec
	Stats     chanqadmin.Stats
	Consumers []chanqadmin.ConsumerInfo
	Pause     chanqadmin.Pause    // if it is paused
	Recent    []chanqadmin.Sample // of the last ten minutes, each of StepFine
	Leased    []chanqadmin.Entry  // leased messages, the first of at most 1,000
	Dead      []chanqadmin.Entry  // dead messages, the last of at most 100; if no key is held, of at most one
	Behind    []chanqadmin.Entry  // ready messages, the first of at most 1,000, if dead messages hold keys
	Retried   []chanqadmin.Entry  // scheduled messages, the first of at most 100

	Seen Seen // see Follow
}

// Seen is when looks at an ordered queue first saw that messages were leased: the rows do not say since when.
type Seen map[delivery]time.Time

// delivery has the fence, which each delivery of a message raises, and a Snooze does not set back as it does the number of attempts.
type delivery struct {
	id    chanq.ID
	fence int64
}

// Follow sets Seen. last is Seen of the previous look. Without Follow, no single message of an ordered queue counts as stuck.
func (f *Figures) Follow(last Seen) {
	if f.Err != nil {
		f.Seen = last
		return
	}
	f.Seen = Seen{}
	for i := range f.Leased {
		if m := &f.Leased[i]; m.HeldSince.IsZero() {
			key := delivery{m.ID, m.Fence}
			at, known := last[key]
			if !known {
				at = f.Now
			}
			f.Seen[key] = at
		}
	}
}

// since returns since when a message has been leased, at least. Zero: not known.
func (f *Figures) since(m *chanqadmin.Entry) time.Time {
	if m.HeldSince.IsZero() {
		return f.Seen[delivery{m.ID, m.Fence}]
	}
	return m.HeldSince
}

const (
	// Patience is how long Look waits for the database, and how long it then waits for the cause.
	Patience = 2 * time.Second
	recently = 10 * time.Minute
	// mostRetried is the length of Figures.Retried.
	mostRetried = 100
)

// Look reads the figures of a queue, in at most twice Patience. It costs five round trips, one more each if messages are leased, if one of their
// consumers is not listed, if messages are scheduled or dead and if the queue is paused. With dead messages that hold keys it costs three more. It reads at most a few
// times 10,000 entries of the queue, however many there are, and takes no locks that block other statements. On SQLite it takes the write
// lock of the file for a moment. If no program has counted the messages in the last 10 s, it adds its counts to the history, in two more round trips.
func Look(ctx context.Context, q Queue) Figures {
	f := Figures{Queue: q.Name(), At: time.Now()}
	within, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	f.Locks, f.Err = q.Locks(within)
	if closed(f.Locks) {
		f.Err = errLocked
		return f
	}
	if err := f.read(within, q); err != nil {
		f = Figures{Queue: f.Queue, At: f.At, Locks: f.Locks, Err: err}
		if ctx.Err() == nil && len(f.Locks) == 0 {
			again, cancel := context.WithTimeout(ctx, Patience)
			defer cancel()
			f.Locks, _ = q.Locks(again) // it may have begun since
		}
		return f
	}
	f.Err = nil // the role might not see locks
	if n := len(f.Recent); n == 0 || !f.Recent[n-1].Counted || f.Now.Sub(f.Recent[n-1].At) >= chanqadmin.StepFine {
		_ = q.Record(within, f.Stats) // it may lack the permission
	}
	return f
}

var errLocked = errors.New("chanqfindings: another session has locked the queue's tables")

// closed reports whether the tables cannot even be read.
func closed(list []chanqadmin.Lock) bool {
	for _, l := range list {
		if l.Reads && l.For >= lockedFor {
			return true
		}
	}
	return false
}

func (f *Figures) read(ctx context.Context, q Queue) (err error) {
	list := func(into *[]chanqadmin.Entry, state chanqadmin.State, limit int) {
		if err == nil {
			var page chanqadmin.Page
			page, err = q.List(ctx, chanqadmin.Select{State: state}, chanqadmin.List{Limit: limit})
			*into = page.Entries
		}
	}
	f.Spec, _ = q.Opened()
	if f.Now, err = q.Now(ctx); err != nil {
		return err
	}
	if f.Stats, err = q.Stats(ctx); err != nil {
		return err
	}
	if f.Consumers, err = q.Consumers(ctx); err != nil {
		return err
	}
	f.Recent, _ = q.History(ctx, f.Now.Add(-recently), chanqadmin.StepFine) // the rest is known without it
	if f.Stats.Paused {
		f.Pause, err = q.Paused(ctx)
	}
	if f.Stats.Leased > 0 {
		list(&f.Leased, chanqadmin.StateLeased, chanqadmin.MostListed)
	}
	if err == nil && slices.ContainsFunc(f.Leased, f.unheard) { // its consumer may have begun since they were read
		f.Consumers, err = q.Consumers(ctx)
	}
	switch {
	case f.Stats.Dead == 0:
	case f.Spec.DeadKey == chanq.DeadKeyHolds:
		list(&f.Dead, chanqadmin.StateDead, 100)
		list(&f.Behind, chanqadmin.StateReady, chanqadmin.MostListed)
	default:
		list(&f.Dead, chanqadmin.StateDead, 1)
	}
	if f.Stats.Scheduled > 0 {
		list(&f.Retried, chanqadmin.StateScheduled, mostRetried)
	}
	return err
}

// unheard reports whether a leased message has a consumer that is not heard.
func (f *Figures) unheard(m chanqadmin.Entry) bool {
	return !m.Consumer.IsZero() && !slices.ContainsFunc(f.Consumers, func(c chanqadmin.ConsumerInfo) bool { return c.ID == m.Consumer && f.heard(c) })
}

// heard reports whether a consumer has sent a heartbeat recently.
func (f *Figures) heard(c chanqadmin.ConsumerInfo) bool {
	return f.Now.Sub(c.Heard) < chanqadmin.HeardFor
}

// Examined is a queue of Examine.
type Examined struct {
	Figures
	Admin *chanqadmin.Queue // nil if it cannot be opened
}

const (
	// examineFor bounds Examine.
	examineFor = 2 * Patience
	// driverGrace is how long a driver may take to notice the end of its context. SQLite waits up to 250 ms for a lock.
	driverGrace = 500 * time.Millisecond
)

// readers is how many queues Examine reads at the same time. Each uses a connection.
const readers = 4

// Examine opens several queues and reads their figures as Look does, four at a time, in at most twice Patience together. A queue that cannot be
// opened has only Err and Locks. Where a queue has not answered when the time is over, or the driver does not return, Err is
// context.DeadlineExceeded; At is zero if it was not even asked. If a SQLite file is locked, it waits for the lock once. That costs one round
// trip more. It uses Dialect and Schema of cfg.
func Examine(ctx context.Context, db *sql.DB, cfg chanq.Config, queues []string) []Examined {
	ctx, cancel := context.WithTimeout(ctx, examineFor)
	defer cancel()
	began := time.Now()
	type result struct {
		i int
		Examined
	}
	results := make(chan result, len(queues)) // no send waits
	var asked atomic.Int64
	var looking sync.WaitGroup
	// The lock of a SQLite file, for which each queue would wait.
	var held []chanqadmin.Lock
	looked := make(chan struct{}) // held is known
	within, cancelWithin := context.WithTimeout(ctx, Patience)
	defer cancelWithin()
	looking.Go(func() { // ends with within, unless the driver hangs
		defer close(looked)
		if len(queues) > 1 {
			list, _ := chanqadmin.Locks(within, db, queues[0], cfg)
			held = slices.DeleteFunc(list, func(l chanqadmin.Lock) bool { return !l.File })
		}
	})
	for range min(readers, len(queues)) {
		looking.Go(func() { // ends with ctx, unless the driver hangs
			var file []chanqadmin.Lock
			select {
			case <-looked:
				file = held
			case <-within.Done():
			}
			for ctx.Err() == nil {
				i := int(asked.Add(1)) - 1
				if i >= len(queues) {
					return
				}
				results <- result{i, examine(ctx, db, cfg, queues[i], file)}
			}
		})
	}
	go func() { // ends with the last of them
		looking.Wait()
		close(results)
	}()
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(driverGrace, func() { close(over) }) })
	defer stop()
	all := make([]Examined, len(queues))
	for open := true; open; {
		select {
		case r, more := <-results:
			if open = more; more {
				all[r.i] = r.Examined
			}
		case <-over:
			open = false
		}
	}
	for i, queue := range queues {
		if all[i].Queue != "" {
			continue
		}
		all[i].Figures = Figures{Queue: queue, Err: fmt.Errorf("%s: not read within %v: %w", queue, examineFor, ctx.Err())}
		if i < int(asked.Load()) {
			all[i].At = began
		}
	}
	return all
}

// WithLocks is a queue whose locks are known: the locks of a SQLite file are looked for once for all its queues.
type WithLocks struct {
	*chanqadmin.Queue
	Found []chanqadmin.Lock
}

// Locks returns Found.
func (q WithLocks) Locks(context.Context) ([]chanqadmin.Lock, error) { return q.Found, nil }

// examine opens a queue and looks at it. file has the lock of its file, if that is locked.
func examine(ctx context.Context, db *sql.DB, cfg chanq.Config, queue string, file []chanqadmin.Lock) Examined {
	within, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	q, err := chanqadmin.Open(within, db, queue, cfg)
	switch {
	case err == nil && len(file) > 0:
		return Examined{Look(ctx, WithLocks{q, file}), q}
	case err == nil:
		return Examined{Look(ctx, q), q}
	}
	f := Figures{Queue: queue, At: time.Now(), Err: err, Locks: file}
	if len(file) == 0 && !errors.Is(err, chanq.ErrNoSchema) {
		again, cancel := context.WithTimeout(ctx, Patience)
		defer cancel()
		f.Locks, _ = chanqadmin.Locks(again, db, queue, cfg) // of the tables that all queues share
	}
	return Examined{Figures: f}
}
