package kills

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/crew"
)

// watch observes the queue from the checker's process, over a connection that no fault affects.
type watch struct {
	engine  engine
	db      *sql.DB
	queue   *chanq.Queue[body]
	began   time.Time
	samples []usage // of the first worker
}

// newWatch creates the queue, which must not exist: its messages would not be ours.
func newWatch(ctx context.Context, name, address string, guilty bool) (w *watch, err error) {
	w = &watch{engine: engines[name], began: time.Now()}
	if w.db, err = w.engine.open(address, nil); err != nil {
		return nil, err
	}
	defer func(opened *watch) {
		if err != nil {
			opened.close()
		}
	}(w)
	if _, err := chanq.Open[body](ctx, w.db, queueName, w.engine.config()); err == nil {
		return nil, fmt.Errorf("the database has a queue %q: drop its tables or use another database", queueName)
	} else if !errors.Is(err, chanq.ErrNoSchema) {
		return nil, err
	}
	connector, err := w.engine.ConnectTables(address)
	if err != nil {
		return nil, err
	}
	tables := sql.OpenDB(connector)
	defer tables.Close()
	if err := chanq.Migrate(ctx, tables, queueName, w.engine.config()); err != nil {
		return nil, err
	}
	if guilty {
		if err := w.engine.install(tables); err != nil {
			return nil, err
		}
	}
	w.queue, err = chanq.Open[body](ctx, w.db, queueName, w.engine.config())
	return w, err
}

// close removes the queue.
func (w *watch) close() {
	if w.queue != nil {
		for _, text := range w.engine.drop {
			_, _ = w.db.Exec(text) // the next run reports what is left
		}
	}
	_ = w.db.Close() // no statement is open on it
}

// quiet waits until no worker sends: a frozen connection might have delayed a send.
func (w *workers) quiet(ctx context.Context, out io.Writer) error {
	sends := func(p *crew.Process) bool { return !w.history.Reported(p.Number, Quiet) }
	err := w.Run(ctx, 10*time.Millisecond, func() (bool, error) { return !slices.ContainsFunc(w.Running(), sends), nil })
	if ctx.Err() != nil {
		for _, p := range w.Running() {
			if sends(p) {
				fmt.Fprintln(out, p.Stacks())
				return fmt.Errorf("worker %d still sends %v after the order to end", p.Number, rest)
			}
		}
	}
	return err
}

// empty waits until only dead messages are left in the queue.
func (w *workers) empty(ctx context.Context) error {
	err := w.Run(ctx, 100*time.Millisecond, func() (bool, error) { return w.queue.Empty(ctx) })
	if ctx.Err() != nil {
		return fmt.Errorf("messages are left in the queue %v after the last one was sent", rest)
	}
	return err
}

const sampleHeader = "   time       sent     stored  delivered    settled    live  table MiB  dead rows  heap MiB  goroutines  kills  faults"

// sample prints what the workers did so far, and the state of the queue.
func (w *workers) sample(out io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	stats, err := testdb.Admin(w.queue).Stats(ctx)
	if err != nil {
		return err
	}
	var bytes int64        // of the table and its indexes
	var dead sql.NullInt64 // rows or pages to be reclaimed
	size, rows := "-", "-" // a server might not show them
	if err := w.db.QueryRowContext(ctx, w.engine.size).Scan(&bytes, &dead); err == nil {
		size, rows = fmt.Sprintf("%.1f", mib(bytes)), fmt.Sprint(dead.Int64)
	}
	t, usage := w.history.totals(w.Places[0].Number)
	w.samples = append(w.samples, usage)
	_, err = fmt.Fprintf(out, "%7.1f %10d %10d %10d %10d %7d %10s %10s %9.1f %11d %6d %7d\n", time.Since(w.began).Seconds(),
		t.sent, t.stored, t.delivered, t.settled, stats.Ready+stats.Scheduled+stats.Leased, size, rows,
		mib(int64(usage.Heap)), usage.Goroutines, t.kills, t.faults)
	return err
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }
