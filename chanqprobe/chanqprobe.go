// Package chanqprobe answers the probes of those who run programs, Kubernetes say: is a worker
// alive, and is it ready?
//
//	probe := chanqprobe.New()
//	orders, err := chanq.Open[Order](ctx, db, "orders", chanq.Config{Hooks: probe.Hooks()})
//	consumer, err := orders.Consume(ctx, chanq.ConsumerConfig{})
//	probe.Add("orders", consumer)
//	http.Handle("/livez", probe.Live())
//	http.Handle("/readyz", probe.Ready())
//
// A probe asks the database nothing, apart from Watch: a thousand workers whose probes did would be a load, and a
// database that is slow would have them all restarted, which helps nobody.
package chanqprobe

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chanq/chanq"
)

// Consumer is what a probe looks at: a *chanq.Consumer[T] or *chanqshards.Consumer[T] of any T is one.
type Consumer interface {
	Done() <-chan struct{}
	Err() error
}

// Probe knows the health of a program's producers and consumers. It is safe for concurrent use.
type Probe struct {
	// Log is told why a consumer has ended, once, when a probe sees it: those who ask are not, since
	// errors of databases have names of hosts and users. nil is slog.Default(). Set it before
	// others use the Probe.
	Log *slog.Logger

	mu         sync.Mutex // guards what follows
	consumers  map[string]Consumer
	logged     map[string]bool         // whose end is in the log
	shards     map[string]int          // of queues over several databases
	unanswered map[string]bool         // databases of Watch
	away       map[part]map[string]int // how many of a part the database does not answer, by label
}

// part of a queue: its producers or its consumers.
type part struct{ queue, name string }

// cannotWork reports that all shards of a queue are away; mu is held.
func (p *Probe) cannotWork(at part) bool { return len(p.away[at]) >= max(p.shards[at.queue], 1) }

// New makes a probe of nothing, which is alive and ready.
func New() *Probe {
	return &Probe{consumers: map[string]Consumer{}, logged: map[string]bool{}, shards: map[string]int{}, away: map[part]map[string]int{}, unanswered: map[string]bool{}}
}

// Hooks hear of outages, which end with whoever is in one at the latest. Join them with others by chanq.JoinHooks.
func (p *Probe) Hooks() chanq.Hooks {
	return chanq.Hooks{Availability: func(e chanq.AvailabilityEvent) {
		p.mu.Lock()
		defer p.mu.Unlock()
		at := part{e.Queue, e.Part}
		if queue, _, labelled := strings.Cut(e.Queue, "/"); labelled && p.shards[queue] > 0 {
			at.queue = queue
		}
		away := p.away[at]
		if away == nil {
			away = map[string]int{}
			p.away[at] = away
		}
		if !e.Up {
			away[e.Queue]++
		} else if away[e.Queue]--; away[e.Queue] <= 0 {
			delete(away, e.Queue)
		}
	}}
}

// Add has a consumer looked at, by a name that is told when it has ended. One that is added with a
// name that another has takes its place.
func (p *Probe) Add(name string, c Consumer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.consumers[name] = c
}

// Shards says that a queue is in so many databases (chanqshards.Open): the program is ready unless all of
// them are away, since one delays its own messages only. Without it each shard counts as a queue. Call it
// before the queue is opened.
func (p *Probe) Shards(queue string, shards int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shards[queue] = shards
}

// Watch has a database looked at until ctx ends: for a program without a producer or a consumer, which only sends in transactions and
// would not be ready while its database is away. It pings db every 10 s, for 5 s at most, and starts one goroutine, which ends with ctx.
func (p *Probe) Watch(ctx context.Context, name string, db *sql.DB) {
	go func() {
		for ticker := time.NewTicker(watchEvery); ; {
			within, cancel := context.WithTimeout(ctx, watchEvery/2)
			err := db.PingContext(within)
			cancel()
			p.mu.Lock()
			p.unanswered[name] = err != nil && ctx.Err() == nil
			p.mu.Unlock()
			select {
			case <-ctx.Done():
				ticker.Stop()
				return
			case <-ticker.C:
			}
		}
	}()
}

const watchEvery = 10 * time.Second

// Live answers 200, or 500 where a consumer has ended by a permanent error (Consumer.Err), which
// nothing in the program mends: a table or a right is missing. An outage does not: consumers
// go on by themselves once the database answers. Nor does a Stop.
func (p *Probe) Live() http.Handler {
	return p.answer(http.StatusInternalServerError, func(tell func(string, ...any)) {
		for name, c := range p.consumers {
			if err := c.Err(); err != nil {
				tell("%s has ended: %s", name, p.why(name, err))
			}
		}
	})
}

// why is an error in a sentence that anybody may read. mu is held.
func (p *Probe) why(name string, err error) string {
	if !p.logged[name] {
		p.logged[name] = true
		log := p.Log
		if log == nil {
			log = slog.Default()
		}
		log.Error("chanqprobe: a consumer has ended", "name", name, "err", err)
	}
	switch {
	case errors.Is(err, chanq.ErrNoSchema):
		return "the queue's tables are missing, or older than the program: run chanq migrate"
	case errors.Is(err, chanq.ErrNewerSchema):
		return "the queue's tables are newer than the program"
	}
	return "the database refuses what it needs, and no repetition mends that: the program's log says what"
}

// Ready answers 200, or 503 while a consumer is stopping or has ended, or the database does not
// answer a producer or a consumer whose queue has Hooks, or a ping of Watch: so a rollout waits for workers that can work.
// See Shards for a queue over several databases.
func (p *Probe) Ready() http.Handler {
	return p.answer(http.StatusServiceUnavailable, func(tell func(string, ...any)) {
		for name, c := range p.consumers {
			select {
			case <-c.Done():
				tell("%s is stopping or has ended", name)
			default:
			}
		}
		for at := range p.away {
			if !p.cannotWork(at) {
				continue
			}
			tell("%s: the database does not answer a %s", at.queue, at.name)
		}
		for name, away := range p.unanswered {
			if away {
				tell("%s: the database does not answer", name)
			}
		}
	})
}

// answer serves what look tells, a line each, with a status, or 200 where it tells nothing.
func (p *Probe) answer(status int, look func(tell func(string, ...any))) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var told []string
		p.mu.Lock()
		look(func(format string, args ...any) { told = append(told, fmt.Sprintf(format, args...)) })
		p.mu.Unlock()
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		if len(told) == 0 {
			fmt.Fprintln(w, "ok")
			return
		}
		slices.Sort(told)
		w.WriteHeader(status)
		for _, line := range told {
			fmt.Fprintln(w, line)
		}
	})
}
