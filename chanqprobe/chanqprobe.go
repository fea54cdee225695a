// Package chanqprobe serves the probes of a process manager such as Kubernetes: whether a worker is alive, and whether it is ready.
//
//	probe := chanqprobe.New()
//	hooks := chanq.JoinHooks(probe.Hooks(), chanq.LogHooks(nil, slog.LevelWarn))
//	orders, err := chanq.Open[Order](ctx, db, "orders", chanq.Config{Hooks: hooks})
//	consumer, err := orders.Consume(ctx, chanq.ConsumerConfig{})
//	probe.Add("orders", consumer)
//	http.Handle("/livez", probe.Live())
//	http.Handle("/readyz", probe.Ready())
//
// Except for Watch, a probe makes no database call. Otherwise the probes of many workers would load the database, and a slow database would
// cause all workers to restart.
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

// Consumer is a consumer that a probe checks: a *chanq.Consumer[T] or *chanqshards.Consumer[T] of any T.
type Consumer interface {
	Done() <-chan struct{}
	Err() error
}

// Probe records the health of a program's producers and consumers. It is safe for concurrent use.
type Probe struct {
	// Log receives the error that ended a consumer, once, when a probe finds it, and the first of several consecutive errors of Watch.
	// Responses do not contain errors, because database errors name hosts and users. Set Log before the first probe. Default:
	// slog.Default().
	Log *slog.Logger

	mu        sync.Mutex // guards the fields below
	consumers map[string]Consumer
	logged    map[string]bool         // consumers whose end is in the log
	shards    map[string]int          // of queues over several databases
	unready   map[string]string       // databases of Watch that did not answer, and why
	away      map[part]map[string]int // how many of a part are in an outage, by label
}

// part of a queue: its producers or its consumers.
type part struct{ queue, name string }

// cannotWork reports whether all shards of a queue are unavailable; mu is held.
func (p *Probe) cannotWork(at part) bool { return len(p.away[at]) >= max(p.shards[at.queue], 1) }

// New returns a Probe without consumers, which is alive and ready.
func New() *Probe {
	return &Probe{consumers: map[string]Consumer{}, logged: map[string]bool{}, shards: map[string]int{}, away: map[part]map[string]int{}, unready: map[string]string{}}
}

// Hooks returns the hooks for Config.Hooks, which report outages to the Probe. An outage ends at the latest with its producer or consumer.
// Join them with other hooks by chanq.JoinHooks.
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

// Add adds a consumer under a name, which the responses contain. It replaces an earlier consumer of the same name.
func (p *Probe) Add(name string, c Consumer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.consumers[name] = c
}

// Shards sets the number of databases of a queue (chanqshards.Open). The program is then ready unless all of them are unavailable,
// since one shard delays only its own messages. Without Shards each shard counts as a queue. Call it before the queue is opened.
func (p *Probe) Shards(queue string, shards int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shards[queue] = shards
}

// Watch checks a database until ctx ends. It is for a program that only sends in transactions, and therefore has no producer or consumer
// that would report an outage. It pings db every 10 s, for at most 5 s, and starts one goroutine, which ends with ctx. A ping needs a
// connection of db: if all are in use for 5 s (SetMaxOpenConns), the program is not ready either, and the response gives that reason.
func (p *Probe) Watch(ctx context.Context, name string, db *sql.DB) {
	go func() {
		for ticker := time.NewTicker(watchEvery); ; {
			within, cancel := context.WithTimeout(ctx, watchEvery/2)
			err := db.PingContext(within)
			cancel()
			p.mu.Lock()
			_, known := p.unready[name]
			delete(p.unready, name)
			if err != nil && ctx.Err() == nil {
				if !known {
					p.log().Warn("chanqprobe: the ping of a database failed", "name", name, "err", err)
				}
				p.unready[name] = whyUnready(db.Stats(), err)
			}
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

// whyUnready returns why a ping failed.
func whyUnready(s sql.DBStats, err error) string {
	if errors.Is(err, context.DeadlineExceeded) && s.MaxOpenConnections > 0 && s.InUse >= s.MaxOpenConnections {
		return fmt.Sprintf("all %d connections of its *sql.DB were in use for %v: raise SetMaxOpenConns, or hold connections for less time", s.InUse, watchEvery/2)
	}
	return "the database does not answer"
}

// Live responds with 200, or 500 if a consumer has ended with a permanent error (Consumer.Err), for example because a table or a permission
// is missing. It stays 200 during an outage, after which consumers continue on their own, and after a Stop.
func (p *Probe) Live() http.Handler {
	return p.answer(http.StatusInternalServerError, func(report func(string, ...any)) {
		for name, c := range p.consumers {
			if err := c.Err(); err != nil {
				report("%s has ended: %s", name, p.why(name, err))
			}
		}
	})
}

func (p *Probe) log() *slog.Logger {
	if p.Log == nil {
		return slog.Default()
	}
	return p.Log
}

// why returns an error as a sentence without names of hosts and users. mu is held.
func (p *Probe) why(name string, err error) string {
	if !p.logged[name] {
		p.logged[name] = true
		p.log().Error("chanqprobe: a consumer has ended", "name", name, "err", err)
	}
	switch {
	case errors.Is(err, chanq.ErrNoSchema):
		return "the queue's tables are missing, or older than the program: run chanq migrate"
	case errors.Is(err, chanq.ErrNewerSchema):
		return "the queue's tables are newer than the program: deploy a newer version of the program"
	}
	return "the database refuses a statement that it needs: the program's log contains the error"
}

// Ready responds with 200, or 503 while a consumer is stopping or has ended, or while the database does not answer a producer or consumer
// whose queue has Hooks, or a ping of Watch. A rollout therefore waits for workers that can process messages. See Shards for a queue over
// several databases.
func (p *Probe) Ready() http.Handler {
	return p.answer(http.StatusServiceUnavailable, func(report func(string, ...any)) {
		for name, c := range p.consumers {
			select {
			case <-c.Done():
				report("%s is stopping or has ended", name)
			default:
			}
		}
		for at := range p.away {
			if !p.cannotWork(at) {
				continue
			}
			report("%s: the database does not answer a %s", at.queue, at.name)
		}
		for name, why := range p.unready {
			report("%s: %s", name, why)
		}
	})
}

// answer serves the reports of look, one line each, with a status, or 200 if there are none.
func (p *Probe) answer(status int, look func(report func(string, ...any))) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var lines []string
		p.mu.Lock()
		look(func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) })
		p.mu.Unlock()
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		if len(lines) == 0 {
			fmt.Fprintln(w, "ok")
			return
		}
		slices.Sort(lines)
		w.WriteHeader(status)
		for _, line := range lines {
			fmt.Fprintln(w, line)
		}
	})
}
