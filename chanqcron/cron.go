package chanqcron

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/chanq/chanq"
)

// Cron sends the messages of the schedules of one queue. It is safe for concurrent use. Run is its only goroutine.
//
// Its Schedules include other queues of the schema.
type Cron[T any] struct {
	*Schedules
	// Failed is called by Run with each error after which it goes on: the database was down, a message was rejected, or
	// a newer program has stored a line that this one cannot parse (it is left to processes that can). Set it before
	// Run. Default: slog.Error.
	Failed func(error)

	q *chanq.Queue[T]
}

// New returns the Cron of a queue that was opened on db. It costs no round trip.
func New[T any](db *sql.DB, q *chanq.Queue[T]) *Cron[T] {
	names := q.Names()
	cfg := chanq.Config{Dialect: names.Dialect, Schema: names.Schema, Durability: chanq.DurabilityAsIs}
	return &Cron[T]{
		Schedules: &Schedules{db, cfg, names, make(chan struct{}, 1)},
		Failed:    func(err error) { slog.Error(err.Error()) },
		q:         q,
	}
}

// Ensure stores schedules. Call it when a program starts, in each process. The stored schedule is the one of the last
// call: a row changes only where it differs. The next tick stays unless the line or the zone differs, so a deployment
// moves no tick. A paused schedule stays paused.
//
// If a schedule is invalid, none is stored, and the error names all faults, in a line by their column. It costs two
// round trips, and one per schedule, two for a new one. After any other error, call it again.
func (c *Cron[T]) Ensure(ctx context.Context, schedules ...Schedule[T]) error {
	var rows [][]any
	var wrong []error
	plans := make([]plan, len(schedules))
	names := map[string]bool{}
	for i, s := range schedules {
		s, err := s.complete()
		if err == nil && names[s.Name] {
			err = errors.New("two schedules have this name")
		}
		names[s.Name] = true
		if err == nil {
			plans[i], _ = planOf(s.Line, s.Zone)
			var row []any
			row, err = c.row(s)
			rows = append(rows, row)
		}
		wrong = append(wrong, failed("ensure", s.Name, err))
	}
	if err := errors.Join(wrong...); err != nil {
		return err
	}
	if _, err := opened(ctx, c.db, c.cfg); err != nil {
		return err
	}
	var ms int64
	if err := queryRow(ctx, c.db, render(c.names, clockText), nil, &ms); err != nil {
		return failed("ensure", "", err)
	}
	for i, row := range rows {
		row[nextColumn] = plans[i].next(timeOf(ms), plans[i].zone).UnixMilli()
		err := ErrNoSchedule
		for _, text := range []string{setText, addText, setText} { // another process may add it first
			if errors.Is(err, ErrNoSchedule) {
				err = c.change(ctx, text, row...)
			}
		}
		if errors.Is(err, ErrNoSchedule) {
			err = errors.New("a schedule of another queue has this name: choose another one, or remove that schedule")
		}
		if err != nil {
			return failed("ensure", schedules[i].Name, err)
		}
	}
	c.awake()
	return nil
}

// nextColumn is the index of next_at in a row.
const nextColumn = 13

// row returns the arguments of setText and addText, without next_at.
func (c *Cron[T]) row(s Schedule[T]) ([]any, error) {
	sent := s.Message // as it will be sent
	sent.Headers = headers(sent.Headers, s.Name, time.Unix(0, 0))
	if !s.Overlap {
		sent.DedupKey = dedupKey(s.Name)
	}
	body, err := c.q.Encode(sent)
	if err != nil {
		return nil, err
	}
	own, err := json.Marshal(s.Message.Headers)
	if err != nil {
		return nil, err
	}
	ttl := (s.Message.TTL + time.Millisecond - 1).Milliseconds()
	return []any{s.Name, c.q.Name(), s.Line, s.Zone, int(s.CatchUp), s.MaxMissed, s.Grace.Milliseconds(), flag(s.Overlap),
		int(s.Message.Priority), ttl, s.Message.Key, s.Message.Type, own, int64(0), body}, nil
}

const (
	// longest is how long Run does not read the table, in which other processes may have changed something.
	longest = 30 * time.Second
	// retryAfter is the pause after an error, such as an outage: the row still has the tick. It doubles up to longest for
	// a schedule whose ticks keep failing, for example because another connection has locked its row.
	retryAfter = time.Second
	// patience is how long a tick waits for a process that holds the row, and a read for its answer. After a failure a
	// tick waits for retryAfter, so that it does not delay the others.
	patience = 10 * time.Second
)

// Run sends the messages of schedules that are due, until ctx is cancelled, and then returns nil. It returns ErrNoSchema
// if the table is missing, and ErrNewerSchema if this program is too old for it. It reports all other errors to Failed,
// and goes on.
//
// It reads the table when the next tick is due, and every 30 s: so a change by another process, for example Resume,
// takes effect within 30 s. A tick costs two statements in the process that sends it, one more if Overlap is false and
// the previous message is in the queue, and one in each other process. The database's clock decides.
func (c *Cron[T]) Run(ctx context.Context) error {
	names, err := opened(ctx, c.db, c.cfg)
	for ; err != nil && ctx.Err() == nil; names, err = opened(ctx, c.db, c.cfg) {
		if errors.Is(err, chanq.ErrNoSchema) || errors.Is(err, chanq.ErrNewerSchema) {
			return err
		}
		c.Failed(err)
		c.sleep(ctx, retryAfter)
	}
	r := runner[T]{c, render(names, dueText), render(names, tickText), map[[2]string]*known{}, map[string]rest{}}
	for ctx.Err() == nil {
		pause, err := r.round(ctx)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			c.Failed(err)
		}
		c.sleep(ctx, pause)
	}
	return nil
}

func (c *Cron[T]) sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.wake:
	case <-ctx.Done():
	}
}

// runner is a call of Run.
type runner[T any] struct {
	*Cron[T]
	due, tick string
	known     map[[2]string]*known // the plans of the rows of the latest round, by line and zone
	rests     map[string]rest      // of schedules whose last tick has failed, by name
}

// rest is how long a schedule waits after a failure, so that it neither delays the others nor fills the log.
type rest struct {
	pause time.Duration
	until time.Time
}

// known is a plan, or the reason why this program has none.
type known struct {
	plan
	err error
}

// dueRow is a row of dueText.
type dueRow struct {
	name, line, zone string
	catchUp          CatchUp
	most             int
	grace            time.Duration
	next             time.Time
}

// round sends what is due. It returns how long nothing will be due.
func (r *runner[T]) round(ctx context.Context) (pause time.Duration, err error) {
	rows, now, err := r.read(ctx)
	if err != nil {
		return retryAfter, failed("read", "", err)
	}
	read := time.Now()
	next := now.Add(longest)
	seen := map[[2]string]*known{}
	var all []error
	for _, row := range rows {
		key := [2]string{row.line, row.zone}
		k := r.known[key]
		if k == nil {
			k = &known{}
			if k.plan, k.err = planOf(row.line, row.zone); k.err != nil {
				r.Failed(failed("run", row.name, fmt.Errorf("this program leaves it to others: %w", k.err)))
			}
			r.known[key] = k
		}
		seen[key] = k
		at := row.next
		if k.err == nil && !at.After(now) {
			var err error
			if at, err = r.try(ctx, row, k.plan, now); err != nil {
				all = append(all, failed("tick", row.name, err))
			}
		}
		if k.err == nil && at.Before(next) {
			next = at
		}
	}
	r.known = seen
	return next.Sub(now) - time.Since(read), errors.Join(all...)
}

func (r *runner[T]) read(ctx context.Context) (list []dueRow, now time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	rows, err := r.db.QueryContext(ctx, r.due, r.q.Name())
	if err != nil {
		return nil, now, err
	}
	defer rows.Close()
	for rows.Next() {
		var row dueRow
		var ms, grace, next int64
		if err := rows.Scan(&ms, &row.name, &row.line, &row.zone, &row.catchUp, &row.most, &grace, &next); err != nil {
			return nil, now, err
		}
		now, row.next, row.grace = timeOf(ms), timeOf(next), time.Duration(grace)*time.Millisecond
		list = append(list, row)
	}
	slices.SortFunc(list, func(a, b dueRow) int { return a.next.Compare(b.next) })
	return list, now, rows.Err()
}

// try sends what is due of a schedule, unless that failed a moment ago. It returns when it is due again.
func (r *runner[T]) try(ctx context.Context, row dueRow, p plan, now time.Time) (time.Time, error) {
	last, failing := r.rests[row.name]
	if left := time.Until(last.until); left > 0 {
		return now.Add(left), nil
	}
	within := patience
	if failing {
		within = retryAfter
	}
	next, err := r.send(ctx, row, p, now, within)
	if err == nil {
		delete(r.rests, row.name)
		return next, nil
	}
	pause := min(max(retryAfter, 2*last.pause), longest)
	r.rests[row.name] = rest{pause, time.Now().Add(pause)}
	return now.Add(pause), err
}

// send moves a schedule to its next tick and sends the messages of those that have passed, in one transaction, unless
// another process has done so. It returns the next tick.
func (r *runner[T]) send(ctx context.Context, row dueRow, p plan, now time.Time, within time.Duration) (time.Time, error) {
	most := 1
	if row.catchUp == CatchUpAll {
		most = max(1, row.most)
	}
	ticks, next := p.passed(row.next, now, most)
	last := ticks[len(ticks)-1]
	if row.catchUp == CatchUpNone && now.Sub(last) > row.grace {
		ticks = nil
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return next, chanq.InTx(ctx, r.db, func(ctx context.Context, tx *sql.Tx) error {
		var j job
		columns, done := j.columns()
		was := []any{next.UnixMilli(), last.UnixMilli(), row.name, row.next.UnixMilli(), r.q.Name(), row.line, row.zone}
		err := queryRow(ctx, tx, r.tick, was, columns...)
		if errors.Is(err, sql.ErrNoRows) {
			return nil // another process sends it, or it has changed
		}
		if err == nil {
			err = done()
		}
		ms := make([]chanq.Message[[]byte], len(ticks))
		for i, at := range ticks {
			ms[i] = j.at(row.name, at)
		}
		if err == nil {
			_, err = r.q.Raw().SendTx(ctx, tx, ms...)
		}
		return err
	})
}
