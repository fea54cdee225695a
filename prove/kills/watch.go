package kills

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/chanq/chanq"
)

// watch looks at the queue from the judge's process, over a connection that
// nothing breaks.
type watch struct {
	engine  engine
	address string
	db      *sql.DB
	queue   *chanq.Queue[[]byte]
	start   time.Time

	samples []sample
}

// sample is one line of the record.
type sample struct {
	at     time.Duration
	totals totals
	live   int64 // rows of the table; at most 10,000 of each state
	bytes  int64 // of the table and its indexes
	dead   int64 // rows or pages to be reclaimed
	usage  usage
}

func newWatch(name, address string) (*watch, error) {
	e := engines[name]
	db, err := e.open(address, nil)
	if err != nil {
		return nil, err
	}
	return &watch{engine: e, address: address, db: db, start: time.Now()}, nil
}

// create makes the queue, which must not be there: its messages are not ours.
func (w *watch) create(ctx context.Context) (err error) {
	if _, err := chanq.Open[[]byte](ctx, w.db, queueName, config(w.engine)); err == nil {
		return fmt.Errorf("the database has a queue %q: drop its tables or use another database", queueName)
	} else if !errors.Is(err, chanq.ErrNoSchema) {
		return err
	}
	connector, err := w.engine.ConnectTables(w.address)
	if err != nil {
		return err
	}
	tables := sql.OpenDB(connector)
	defer tables.Close()
	if err := chanq.Migrate(ctx, tables, queueName, config(w.engine)); err != nil {
		return err
	}
	w.queue, err = chanq.Open[[]byte](ctx, w.db, queueName, config(w.engine))
	return err
}

// close removes the queue.
func (w *watch) close() {
	if w.queue != nil {
		for _, text := range w.engine.drop {
			_, _ = w.db.Exec(text) // what is left is seen by the next run
		}
	}
	_ = w.db.Close() // nothing is open on it
}

// empty waits until nothing is left in the queue but dead messages.
func (w *watch) empty(ctx context.Context, workers *workers) error {
	live := 0
	err := workers.Run(ctx, 100*time.Millisecond, func() (bool, error) {
		s, err := w.queue.Stats(ctx)
		live = s.Ready + s.Scheduled + s.Leased
		return live == 0, err
	})
	if ctx.Err() != nil {
		return fmt.Errorf("%d messages are left in the queue %v after the last one was sent", live, rest)
	}
	return err
}

const sampleHeader = "   time       sent     stored  delivered    settled    live  table MiB  dead rows  heap MiB  goroutines  kills  faults"

func (w *watch) sample(workers *workers, out io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	stats, err := w.queue.Stats(ctx)
	if err != nil {
		return err
	}
	s := sample{at: time.Since(w.start), live: int64(stats.Ready + stats.Scheduled + stats.Leased)}
	s.totals, s.usage = workers.history.totals(workers.Places[0].Number)
	var dead sql.NullInt64
	if err := w.db.QueryRowContext(ctx, w.engine.size).Scan(&s.bytes, &dead); err != nil {
		return err
	}
	s.dead = dead.Int64
	w.samples = append(w.samples, s)
	_, err = fmt.Fprintf(out, "%7.1f %10d %10d %10d %10d %7d %10.1f %10d %9.1f %11d %6d %7d\n", s.at.Seconds(),
		s.totals.sent, s.totals.stored, s.totals.delivered, s.totals.settled, s.live, mib(s.bytes), s.dead,
		mib(int64(s.usage.Heap)), s.usage.Goroutines, s.totals.kills, s.totals.faults)
	return err
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }
