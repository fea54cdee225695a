package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/bench/internal/measure"
	"github.com/chanq/chanq/internal/testdb/child"
	"github.com/chanq/chanq/pgbell"
)

// gap is the time between two messages: so long that consumers sleep.
type gap struct{ low, high time.Duration }

func (g gap) String() string { return fmt.Sprintf("%v to %v", g.low, g.high) }

// next jitters, so that no poll is in step with the sender.
func (g gap) next() time.Duration { return g.low + rand.N(g.high-g.low+1) }

// nap is one measurement of consumers that sleep: how many processes, and how long.
type nap struct {
	readers int
	gap     gap
}

var (
	warm = gap{100 * time.Millisecond, 500 * time.Millisecond}
	cold = gap{2 * time.Second, 4 * time.Second}
)

// rest is how long nothing is sent, to count what consumers ask that have nothing to do.
const rest = 10 * time.Second

// measureIdle sends single messages to consumers of other processes that sleep, and
// counts all statements of all of them.
func measureIdle(ctx context.Context, o options, report func(measure.Result)) error {
	for round := range o.rounds {
		for _, n := range []nap{{1, warm}, {1, cold}, {o.crowd, warm}} {
			r, err := measureNap(ctx, o, n)
			if err != nil {
				return fmt.Errorf("%d idle processes, gaps of %v: %w", n.readers, n.gap, err)
			}
			r.Round = round + 1
			report(r)
		}
	}
	return nil
}

func measureNap(ctx context.Context, o options, n nap) (measure.Result, error) {
	r := newResult(o, "chanq")
	r.BodyBytes, r.Processes, r.Gap, r.Bell = o.latencyBody(), n.readers+1, n.gap.String(), o.bell
	err := onStore(ctx, o, "chanq", func(s *store, _ strategy) (err error) {
		r.Server = s.about(ctx)
		if r.CommitP50, err = commitTime(ctx, s, o.latencyBody()); err != nil {
			return err
		}
		sleepers, err := startSleepers(ctx, sleepTask{Place: s.place, Bell: o.bell}, n.readers)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, sleepers.end()) }()
		bell := newBenchBell(s.place, o.bell)
		defer bell.close()
		config := s.config()
		config.Bell = bell.of()
		queue, err := chanq.Open[[]byte](ctx, s.db, s.place.Queue, config)
		if err != nil {
			return err
		}
		producer, err := queue.Producer(chanq.ProducerConfig{})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, producer.Close(context.WithoutCancel(ctx))) }()
		sleep(ctx, 2*time.Second) // they fall asleep
		before := sleepers.statements()
		sleep(ctx, rest)
		idle := float64(sleepers.statements()-before) / rest.Seconds()
		asked := func() int64 { return sleepers.statements() + s.counter.Statements() + bell.statements() }
		before, began := asked(), time.Now()
		for time.Since(began) < o.latencyFor && ctx.Err() == nil {
			sleep(ctx, n.gap.next())
			body := make([]byte, o.latencyBody())
			stamp(body, time.Now())
			if _, err := producer.Send(ctx, chanq.Message[[]byte]{Body: body}); err != nil {
				return err
			}
			r.N++
		}
		sleep(ctx, 1500*time.Millisecond) // the last is read, and acked
		took := time.Since(began)
		ages := sleepers.ages()
		if len(ages) != r.N {
			return fmt.Errorf("%d of %d messages were read", len(ages), r.N)
		}
		r.IdleStatements = idle / float64(n.readers)
		r.StatementsPerMessage = (float64(asked()-before) - idle*took.Seconds()) / float64(r.N)
		slices.Sort(ages)
		r.P50, r.P99, r.Max = measure.Quantile(ages, 0.5), measure.Quantile(ages, 0.99), measure.Quantile(ages, 1)
		return ctx.Err()
	})
	return r, err
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// benchBell is a bell of an engine, on a *sql.DB of its own, and the count of what it asks.
type benchBell struct {
	db    *sql.DB
	off   bool
	bell  *pgbell.Bell // nil: that of the *sql.DB, or none
	count traced
}

// newBenchBell makes the bell of a place, if one is wanted and the engine has one.
func newBenchBell(p place, wanted bool) *benchBell {
	b := &benchBell{off: !wanted}
	if config, err := pgx.ParseConfig(p.DSN); wanted && p.Engine == postgresEngine.name && err == nil {
		config.Tracer = &b.count
		b.db = stdlib.OpenDB(*config)
		b.bell = pgbell.New(b.db, pgbell.Config{})
	}
	return b
}

func (b *benchBell) of() chanq.Bell {
	switch {
	case b.off:
		return chanq.NoBell{}
	case b.bell == nil:
		return nil
	}
	return b.bell
}

func (b *benchBell) statements() int64 { return b.count.n.Load() }

func (b *benchBell) close() {
	if b.bell != nil {
		_ = b.bell.Close()
		_ = b.db.Close()
	}
}

// sleepTask reads in a process of its own with one consumer, as most do. It tells the age
// of each message, and at each order how many statements it has run.
type sleepTask struct {
	Place place
	Bell  bool
}

func (t sleepTask) where() place { return t.Place }

func (t sleepTask) run(ctx context.Context, s *store, orders <-chan string) error {
	bell := newBenchBell(t.Place, t.Bell)
	defer bell.close()
	config := s.config()
	config.Bell = bell.of()
	queue, err := chanq.Open[[]byte](ctx, s.db, s.place.Queue, config)
	if err != nil {
		return err
	}
	c, err := queue.Consume(ctx, chanq.ConsumerConfig{})
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	var mu sync.Mutex // guards out
	tell := func(v slept) {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(v)
	}
	tell(slept{}) // it is connected
	go func() {   // ends with the process's input
		for order := range orders {
			tell(slept{Order: order, Statements: s.counter.Statements() + bell.statements()})
		}
	}()
	for l := range c.C() {
		tell(slept{Age: time.Since(stampOf(l.Body))})
		if err := l.Ack(); err != nil {
			return err
		}
	}
	return c.Shutdown(context.WithoutCancel(ctx))
}

// slept is a line of what a sleeper tells.
type slept struct {
	Age        time.Duration `json:"age,omitempty"`
	Order      string        `json:"order,omitempty"`
	Statements int64         `json:"statements,omitempty"`
}

// sleepers are the processes that read.
type sleepers struct {
	children []*child.Process
	orders   int

	mu      sync.Mutex // guards what follows
	read    []time.Duration
	answers chan slept
}

func startSleepers(ctx context.Context, task sleepTask, n int) (*sleepers, error) {
	s := &sleepers{answers: make(chan slept, n)}
	for range n {
		connected := make(chan struct{})
		var once sync.Once
		p, err := child.Start(context.WithoutCancel(ctx), "sleep", task, func(line string) {
			once.Do(func() { close(connected) })
			var v slept
			if json.Unmarshal([]byte(line), &v) != nil {
				return
			}
			switch {
			case v.Order != "":
				s.answers <- v
			case v.Age > 0:
				s.mu.Lock()
				s.read = append(s.read, v.Age)
				s.mu.Unlock()
			}
		})
		if err != nil {
			return nil, errors.Join(err, s.end())
		}
		s.children = append(s.children, p)
		select {
		case <-connected:
		case <-p.Ended():
			return nil, errors.Join(p.Wait(), s.end())
		}
	}
	return s, nil
}

// statements is how many all have run so far.
func (s *sleepers) statements() (sum int64) {
	s.orders++
	order := strconv.Itoa(s.orders)
	for _, p := range s.children {
		p.Order(order)
	}
	for range s.children {
		select {
		case a := <-s.answers:
			sum += a.Statements
		case <-time.After(10 * time.Second): // one has ended, as end tells
		}
	}
	return sum
}

// ages are those of what was read.
func (s *sleepers) ages() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.read)
}

func (s *sleepers) end() error {
	for _, p := range s.children {
		p.Stop()
	}
	var errs []error
	for _, p := range s.children {
		errs = append(errs, p.Wait())
	}
	return errors.Join(errs...)
}
