package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/bench/internal/measure"
)

// crew is the number of concurrently sending goroutines, and of messages per call. Each goroutine
// waits for one call before the next.
type crew struct{ goroutines, messages int }

func (c crew) String() string { return fmt.Sprintf("%dx%d", c.goroutines, c.messages) }

// parseCrew parses the form that String returns.
func parseCrew(text string) (c crew, err error) {
	if _, err := fmt.Sscanf(text, "%dx%d", &c.goroutines, &c.messages); err != nil || c.String() != text || c.goroutines < 1 || c.messages < 1 {
		return c, fmt.Errorf("-senders: %q is not goroutines x messages of a call, such as 4x100", text)
	}
	return c, nil
}

// measureSenders measures sends that wait: with chanq, where the sends of all goroutines share one
// producer's statements, and with the bare statement, one per call, on a connection per goroutine.
func measureSenders(ctx context.Context, o options, report func(measure.Result)) error {
	type way struct {
		strategy string
		send     func(context.Context, options, *store, crew) (senders, error)
	}
	ways := []way{{"raw", rawSenders}, {"chanq", chanqSenders}}
	ways = slices.DeleteFunc(ways, func(w way) bool { return !slices.Contains(o.strategies, w.strategy) })
	for round := range o.rounds + 1 {
		for _, c := range o.crews {
			for i := range ways {
				way := ways[(i+round)%len(ways)]
				r := newResult(o, way.strategy)
				r.Round, r.Senders, r.Batch = round, c.goroutines, c.messages
				calls := max(o.n/(c.goroutines*c.messages), 1)
				r.N = calls * c.goroutines * c.messages
				err := onStore(ctx, o, "raw", func(s *store, _ strategy) error {
					r.Server = s.about(ctx)
					senders, err := way.send(ctx, o, s, c)
					if err != nil {
						return err
					}
					waits, cost, err := c.run(ctx, s, way.strategy+" send", calls, senders.each)
					n := float64(r.N)
					r.EnqueuePerS, r.StatementsPerMessage = n/cost.Seconds, cost.Statements/n
					r.EnqueueAllocs, r.EnqueueCPU = cost.Allocs/n, 1e6*cost.CPU/n
					r.CommitP50, r.CommitP99 = measure.Quantile(waits, 0.5), measure.Quantile(waits, 0.99)
					return errors.Join(err, senders.close())
				})
				if err != nil {
					return fmt.Errorf("%s, %v: %w", way.strategy, c, err)
				}
				if round > 0 {
					report(r)
				}
			}
		}
	}
	return nil
}

// senders are one way to send. Each goroutine calls each, which passes use a function that sends
// the messages of one call.
type senders struct {
	each  func(use func(send func() error) error) error
	close func() error
}

func rawSenders(ctx context.Context, o options, s *store, c crew) (senders, error) {
	bodies := makeBodies(c.messages, o.body)
	s.db.SetMaxIdleConns(c.goroutines)
	return senders{close: func() error { return nil }, each: func(use func(func() error) error) error {
		return s.session(ctx, func(session *bareSession) error {
			return use(func() error { return session.enqueue(bodies) })
		})
	}}, nil
}

func chanqSenders(ctx context.Context, o options, s *store, c crew) (senders, error) {
	queue, err := s.open(ctx)
	if err != nil {
		return senders{}, err
	}
	producer, err := queue.Producer(ctx, chanq.ProducerConfig{BatchRows: o.batch, InFlight: o.inFlight})
	if err != nil {
		return senders{}, err
	}
	bodies := makeBodies(c.messages, o.body)
	return senders{close: func() error { return producer.Close(ctx) }, each: func(use func(func() error) error) error {
		messages := make([]chanq.Message[[]byte], len(bodies))
		for i, body := range bodies {
			messages[i].Body = body
		}
		return use(func() (err error) {
			if len(messages) == 1 {
				_, err = producer.Send(ctx, messages[0])
			} else {
				_, err = producer.SendBatch(ctx, messages...)
			}
			return err
		})
	}}, nil
}

// run starts all goroutines at the same time, after they have connected, and returns the durations
// of their calls, sorted.
func (c crew) run(ctx context.Context, s *store, phase string, calls int, each func(use func(send func() error) error) error) ([]time.Duration, measure.Cost, error) {
	waits := make([]time.Duration, c.goroutines*calls)
	begin := make(chan struct{})
	var connected sync.WaitGroup
	var group errgroup.Group
	for i := range c.goroutines {
		connected.Add(1)
		group.Go(func() error {
			ready := sync.OnceFunc(connected.Done)
			defer ready()
			return each(func(send func() error) error {
				ready()
				<-begin
				for j := range calls {
					start := time.Now()
					if err := send(); err != nil {
						return err
					}
					waits[i*calls+j] = time.Since(start)
				}
				return nil
			})
		})
	}
	connected.Wait()
	cost, err := timed(ctx, s, phase, func(context.Context) error {
		close(begin)
		return group.Wait()
	})
	slices.Sort(waits)
	return waits, cost, err
}

func writeSenders(w io.Writer, _ options, results []measure.Result) error {
	return measure.WriteTables(w, sendersTables(results)...)
}

func sendersTables(results []measure.Result) (tables []measure.Table) {
	for _, g := range measure.Group(results, runOf) {
		t := measure.Table{
			Title: fmt.Sprintf("%s, body %d B, rounds %d: goroutines that wait for each call", g.Key.engine, g.Key.body, rounds(g.Results)),
			Head: []string{"goroutines x messages", "strategy", "messages/s", "of raw", "statements/msg", "allocs/msg", "CPU µs/msg",
				"call p50 µs", "call p99 µs"},
		}
		for _, at := range measure.Group(g.Results, func(r measure.Result) crew { return crew{r.Senders, r.Batch} }) {
			raw := slices.DeleteFunc(slices.Clone(at.Results), func(r measure.Result) bool { return r.Strategy != "raw" })
			for _, way := range byStrategy(at.Results) {
				rs := way.Results
				t.Rows = append(t.Rows, []string{
					at.Key.String(), way.Key, measure.Ranged(rs, enqueueRate), measure.Times(rs, raw, enqueueRate),
					measure.Ranged(rs, func(r measure.Result) float64 { return r.StatementsPerMessage }),
					measure.Ranged(rs, enqueueAllocs), measure.Ranged(rs, enqueueCPU), measure.Ranged(rs, commitP50),
					measure.Ranged(rs, func(r measure.Result) float64 { return r.CommitP99 }),
				})
			}
		}
		tables = append(tables, t)
	}
	return tables
}

func commitP50(r measure.Result) float64 { return r.CommitP50 }
