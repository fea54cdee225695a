package chanqjobs

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/chanq/chanq"
)

// UnknownWaits returns a handler for Mux.Unknown. During a rollout an old program gets jobs that only the new one can handle. It releases them
// uncounted, for 30 s, until the new program gets them. When a process has met a kind again and again for as long as most, it dead-letters
// the next job: the kind is misspelt, or no program handles it. So most must be longer than your rollouts. After most without a job of the
// kind, or a restart, the time begins again.
func UnknownWaits(most time.Duration) chanq.Handler[Job] {
	type met struct{ first, last time.Time }
	var mu sync.Mutex // guards kinds
	kinds := map[string]met{}
	return func(_ context.Context, l *chanq.Lease[Job]) error {
		now := time.Now()
		mu.Lock()
		maps.DeleteFunc(kinds, func(_ string, m met) bool { return now.Sub(m.last) > most })
		m, known := kinds[l.Type]
		if !known {
			m.first = now
		}
		m.last = now
		kinds[l.Type] = m
		mu.Unlock()
		err := fmt.Errorf("no handler for the kind %q", l.Type)
		if now.Sub(m.first) >= most {
			return chanq.DeadLetter(err)
		}
		return chanq.Snooze(min(30*time.Second, most), err)
	}
}

// Limit returns a Middleware that waits before each call, in this process. A *rate.Limiter of golang.org/x/time is a limiter. If its Wait
// fails, the job is released uncounted, for 1 s. A job that waits holds its worker, so a kind with a limit needs a queue if others must not wait.
func Limit(limiter interface{ Wait(context.Context) error }) chanq.Middleware {
	return func(ctx context.Context, d *chanq.Delivery, next func(context.Context) error) error {
		if err := limiter.Wait(ctx); err != nil {
			return chanq.Snooze(time.Second, err)
		}
		return next(ctx)
	}
}

// Breaker returns a Middleware for handlers that call a service. After n failures in a row of a kind, it releases jobs of this kind uncounted,
// without a call, for the given time. Then one job tries: its success ends the pause, and its failure begins the next one. A failure is
// an error that retries the job or was its last attempt, or a panic. Breaker counts in this process. It panics if n or pause is not positive.
func Breaker(n int, pause time.Duration) chanq.Middleware {
	if n < 1 || pause <= 0 {
		panic(fmt.Sprintf("chanqjobs: Breaker(%d, %v): n and pause must be positive", n, pause))
	}
	b := &breaker{most: n, pause: pause, kinds: map[string]failing{}}
	return func(ctx context.Context, d *chanq.Delivery, next func(context.Context) error) error {
		if left := b.left(d.Type); left > 0 {
			return chanq.Snooze(left, fmt.Errorf("the last %d calls for the kind %q failed: paused", n, d.Type))
		}
		failed := true // unless next returns
		defer func() { b.count(d.Type, failed) }()
		err := next(ctx)
		o := chanq.Outcome(err)
		failed = retries(o) || o.Cause == chanq.CauseExhausted
		return err
	}
}

type breaker struct {
	most  int
	pause time.Duration

	mu    sync.Mutex // guards kinds
	kinds map[string]failing
}

// failing is a kind whose last calls failed.
type failing struct {
	calls int
	until time.Time // no call before
}

// left returns how long a kind is paused. After the pause it lets one call pass, and pauses the others again.
func (b *breaker) left(kind string) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.kinds[kind]
	if f.calls < b.most {
		return 0
	}
	if left := time.Until(f.until); left > 0 {
		return left
	}
	f.until = time.Now().Add(b.pause)
	b.kinds[kind] = f
	return 0
}

func (b *breaker) count(kind string, failed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !failed {
		delete(b.kinds, kind)
		return
	}
	b.kinds[kind] = failing{b.kinds[kind].calls + 1, time.Now().Add(b.pause)}
}
