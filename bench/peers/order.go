package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chanq/chanq/bench/internal/measure"
	"github.com/chanq/chanq/sqlbatch"
)

// orderArgument, as the first argument, selects the ways to keep the order of each key.
const orderArgument = "order"

// orderOptions are its flags.
type orderOptions struct {
	dsn, format, record         string
	n, keys, body, rounds, free int
	blocked                     []int
	most                        time.Duration
	systems                     []orderSystem
}

// orderedQueue is a queue in a separate database.
type orderedQueue interface {
	// send stores a message of each key by statements of sendRows.
	send(ctx context.Context, keys []string, body string) error
	// hold takes the first message of each of a number of keys, and keeps it in processing.
	hold(ctx context.Context, keys int) error
	// drain takes and completes n messages, or as many as it can within most. It returns their
	// number, and the time of the fetching statements. With 0 messages the first statement took too
	// long.
	drain(ctx context.Context, n int, most time.Duration) (done int, fetching time.Duration, err error)
	close(ctx context.Context) error
}

const (
	sendRows  = 500
	fetchRows = 100
	hotKeys   = 20 // keys that have all blocked messages
)

func parseOrder(args []string, usage io.Writer) (o orderOptions, err error) {
	var blocked, chosen string
	f := flag.NewFlagSet("peers order", flag.ContinueOnError)
	f.SetOutput(usage)
	f.StringVar(&o.dsn, "dsn", "", "PostgreSQL server whose user may create databases; one is made and dropped for each measurement")
	f.StringVar(&chosen, "systems", "", "comma-separated (default all): "+strings.Join(orderNames(orderSystems), ", "))
	f.IntVar(&o.n, "n", 20_000, "messages that are sent and drained")
	f.IntVar(&o.keys, "keys", 10_000, "keys that they have")
	f.IntVar(&o.free, "free", 1_000, "messages of other keys that are drained with blocked messages present")
	f.StringVar(&blocked, "blocked", "0,1000,10000,100000", fmt.Sprintf("comma-separated: messages that wait behind those in work of %d keys", hotKeys))
	f.DurationVar(&o.most, "most", 10*time.Second, "a drain ends after this time with what it has got by then; a single fetch that takes six times as long is cancelled")
	f.IntVar(&o.body, "body", 200, "bytes of a body")
	f.IntVar(&o.rounds, "rounds", 1, "rounds")
	f.StringVar(&o.format, "format", formatTable, "table, or json: one object a line for each measurement")
	f.StringVar(&o.record, "record", "", "with -format table: write the objects of -format json to this file, too")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	var errs []error
	for text := range strings.SplitSeq(blocked, ",") {
		size, err := strconv.Atoi(text)
		if err != nil || size < 0 {
			errs = append(errs, fmt.Errorf("-blocked: %q is not a number of 0 or more", text))
		}
		o.blocked = append(o.blocked, size)
	}
	for _, s := range orderSystems {
		if chosen == "" || strings.Contains(","+chosen+",", ","+s.name+",") {
			o.systems = append(o.systems, s)
		}
	}
	if o.dsn == "" || f.NArg() > 0 || len(o.systems) == 0 || min(o.n, o.keys, o.free, o.body, o.rounds) < 1 {
		errs = append(errs, errors.New("-dsn is needed, everything is a flag, some system must be named, and all numbers must be positive"))
	}
	return o, errors.Join(errs...)
}

func runOrder(ctx context.Context, args []string, out, messages io.Writer) (err error) {
	o, err := parseOrder(args, messages)
	if err != nil {
		return err
	}
	server, err := connect(ctx, o.dsn)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.close()) }()
	lines := io.Discard
	if o.format == formatJSON {
		lines = out
	} else if o.record != "" {
		file, err := os.Create(o.record)
		if err != nil {
			return err
		}
		defer file.Close()
		lines = file
	}
	var results []measure.Result
	for round := range o.rounds {
		for i := range o.systems {
			s := o.systems[(i+round)%len(o.systems)]
			of, err := s.measure(ctx, o, server, round+1)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			for _, r := range of {
				results = append(results, r)
				if err := measure.Write(lines, r); err != nil {
					return err
				}
			}
		}
	}
	if o.format == formatJSON {
		return nil
	}
	if err := measure.WriteTables(out, orderTable(o, server.about, results)); err != nil {
		return err
	}
	for _, s := range o.systems {
		fmt.Fprintf(out, "%s: %s\n", s.name, s.note)
	}
	return nil
}

// measure measures one system: the throughput with many keys, and the time of a fetch with
// blocked messages.
func (s orderSystem) measure(ctx context.Context, o orderOptions, server *server, round int) (results []measure.Result, err error) {
	body := strings.Repeat("x", o.body)
	result := measure.Here()
	result.Engine, result.Strategy, result.Version, result.BodyBytes, result.Round, result.Keys, result.Server = postgres, s.name, s.version, o.body, round, o.keys, server.about
	err = s.onQueue(ctx, server, func(q orderedQueue, tidy func() error) error {
		r := result
		r.Step = orderArgument
		began := time.Now()
		if err := q.send(ctx, keysOf(o.n, o.keys, "customer"), body); err != nil {
			return err
		}
		r.EnqueuePerS = float64(o.n) / time.Since(began).Seconds()
		if err := tidy(); err != nil {
			return err
		}
		began = time.Now()
		done, fetching, err := q.drain(ctx, o.n, o.most)
		r.N, r.DrainPerS, r.ClaimStatement = done, float64(done)/time.Since(began).Seconds(), fetchTime(fetching, done)
		results = append(results, r)
		return err
	})
	for _, size := range o.blocked {
		if err != nil {
			return results, err
		}
		err = s.onQueue(ctx, server, func(q orderedQueue, tidy func() error) error {
			r := result
			r.Axis, r.Size = "blocked", size
			hot := min(size, hotKeys)
			if err := errors.Join(q.send(ctx, keysOf(size, hotKeys, "hot"), body), q.hold(ctx, hot), q.send(ctx, freeKeys(o.free, o.keys), body), tidy()); err != nil {
				return err
			}
			done, fetching, err := q.drain(ctx, o.free, o.most)
			r.N, r.ClaimStatement = done, fetchTime(fetching, done)
			results = append(results, r)
			return err
		})
	}
	return results, err
}

// fetchTime returns the time of a fetch per message, in µs. For a cancelled fetch it is a lower
// bound.
func fetchTime(fetching time.Duration, done int) float64 {
	if done == 0 {
		done = fetchRows
	}
	return 1e6 * fetching.Seconds() / float64(done)
}

// onQueue runs f on an empty queue. tidy does the work of autovacuum.
func (s orderSystem) onQueue(ctx context.Context, server *server, f func(q orderedQueue, tidy func() error) error) (err error) {
	d, err := server.create(ctx)
	if err != nil {
		return err
	}
	db, err := openPostgres(d.dsn)
	defer func() { err = errors.Join(err, d.drop(context.WithoutCancel(ctx))) }()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	q, err := s.open(ctx, db)
	if err != nil {
		return err
	}
	err = f(q, func() error { return tidy(ctx, db) })
	return errors.Join(err, q.close(context.WithoutCancel(ctx)))
}

func tidy(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, "VACUUM (ANALYZE)")
	return err
}

// keysOf returns the keys of n messages in turn.
func keysOf(n, keys int, name string) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = name + " " + strconv.Itoa(i%keys)
	}
	return names
}

// freeKeys is keysOf without keys that share a slot in chanq with a hot key, which would be
// blocked.
func freeKeys(n, keys int) []string {
	slot := func(key string) int { return sqlbatch.SlotOf(key, [16]byte{}, 64) }
	hot := map[int]bool{}
	for _, key := range keysOf(hotKeys, hotKeys, "hot") {
		hot[slot(key)] = true
	}
	names := slices.DeleteFunc(keysOf(keys, keys, "customer"), func(key string) bool { return hot[slot(key)] })
	return slices.Repeat(names, n/len(names)+1)[:n]
}

func orderTable(o orderOptions, about string, results []measure.Result) measure.Table {
	t := measure.Table{
		Title: fmt.Sprintf("%d messages of %d keys, body %d B, rounds %d; fetches of %d, drained for %v at most; %s", o.n, o.keys, o.body, o.rounds, fetchRows, o.most, about),
		Head:  []string{"system", "version", "enqueue/s", "drain/s"},
	}
	for _, size := range o.blocked {
		t.Head = append(t.Head, fmt.Sprintf("ms to fetch %d, %d blocked", fetchRows, size))
	}
	fetch := func(r measure.Result) float64 { return r.ClaimStatement * fetchRows / 1e3 }
	for _, s := range measure.Group(results, func(r measure.Result) string { return r.Strategy }) {
		by := measure.Group(s.Results, func(r measure.Result) string { return r.Axis + strconv.Itoa(r.Size) })
		row := []string{s.Key, s.Results[0].Version, measure.Ranged(by[0].Results, enqueueRate), measure.Ranged(by[0].Results, drainRate)}
		for _, g := range by[1:] {
			text := measure.Ranged(g.Results, fetch)
			if g.Results[0].N == 0 {
				text = "more than " + text
			}
			row = append(row, text)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}
