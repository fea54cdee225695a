package chanqcron

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/chanq/chanq"
)

// Schedules are the schedules of all queues of a schema, for their operators. It is safe for concurrent use.
type Schedules struct {
	db    *sql.DB
	cfg   chanq.Config // of Send
	names chanq.Names
	wake  chan struct{} // wakes Cron.Run of this value; capacity 1
}

// Open opens the schedules of a schema for their operators. It uses Dialect, Schema, Notifier and StatementTimeout of
// cfg, and costs one round trip. Its errors say what to do: ErrNoSchema, ErrNewerSchema.
func Open(ctx context.Context, db *sql.DB, cfg chanq.Config) (*Schedules, error) {
	cfg = chanq.Config{Dialect: cfg.Dialect, Schema: cfg.Schema, Notifier: cfg.Notifier, StatementTimeout: cfg.StatementTimeout,
		Durability: chanq.DurabilityAsIs}
	names, err := opened(ctx, db, cfg)
	if err != nil {
		return nil, err
	}
	return &Schedules{db, cfg, names, make(chan struct{}, 1)}, nil
}

// ErrNoSchedule: there is no schedule of this name.
var ErrNoSchedule = errors.New("no such schedule")

// Entry is a stored schedule.
type Entry struct {
	Name, Queue, Line, Zone string
	CatchUp                 CatchUp
	Grace                   time.Duration
	MaxMissed               int
	Overlap                 bool
	Type                    string // of the message
	// Next is the next tick, Last the latest one that has passed or zero, and Ensured when a process has last ensured
	// the schedule. By the clock of the database, in UTC.
	Next, Last, Ensured time.Time
	Pause               Pause
}

// Pause is the pause of a schedule.
type Pause struct {
	Since      time.Time // by the clock of the database; zero: it is not paused
	By, Reason string
}

// List returns all schedules, in the order of their names. It costs one round trip.
func (s *Schedules) List(ctx context.Context) (list []Entry, err error) {
	rows, err := s.db.QueryContext(ctx, render(s.names, listText))
	if err != nil {
		return nil, failed("list", "", err)
	}
	defer rows.Close()
	for rows.Next() {
		var e Entry
		var grace, next, ensured int64
		var last, since sql.NullInt64
		var by, reason sql.NullString
		var overlap int
		if err := rows.Scan(&e.Name, &e.Queue, &e.Line, &e.Zone, &e.CatchUp, &e.MaxMissed, &grace, &overlap, &e.Type, &next, &last,
			&since, &by, &reason, &ensured); err != nil {
			return nil, failed("list", "", err)
		}
		e.Grace, e.Overlap = time.Duration(grace)*time.Millisecond, overlap != 0
		e.Next, e.Ensured = timeOf(next), timeOf(ensured)
		if last.Valid {
			e.Last = timeOf(last.Int64)
		}
		if since.Valid {
			e.Pause = Pause{timeOf(since.Int64), by.String, reason.String}
		}
		list = append(list, e)
	}
	return list, failed("list", "", rows.Err())
}

// maxPause is the most bytes of each text of a pause.
const maxPause = 400

// Pause stops the ticks of a schedule in all processes, until Resume. Messages that it has sent stay in the queue. by
// and reason are for other operators: at most 400 bytes each. It costs one round trip.
func (s *Schedules) Pause(ctx context.Context, name, by, reason string) error {
	if len(by) > maxPause || len(reason) > maxPause || !isText(by) || !isText(reason) {
		return failed("pause", name, fmt.Errorf("by and reason: must be at most %d bytes of UTF-8 without control characters", maxPause))
	}
	return failed("pause", name, s.change(ctx, pauseText, name, by, reason))
}

// Resume ends the pause of a schedule. The ticks that have passed in the pause are not sent. It costs two round trips.
func (s *Schedules) Resume(ctx context.Context, name string) error {
	for {
		found, _, err := s.find(ctx, name)
		if err != nil {
			return failed("resume", name, err)
		}
		p, err := planOf(found.line, found.zone)
		if err != nil {
			return failed("resume", name, err)
		}
		next := p.next(found.now, p.zone).UnixMilli()
		err = s.change(ctx, resumeText, name, next, found.line, found.zone)
		if errors.Is(err, ErrNoSchedule) {
			continue // another process has changed the line since find, or removed the schedule
		}
		s.awake()
		return failed("resume", name, err)
	}
}

// Remove deletes a schedule. A program that still ensures it creates it again. It costs one round trip.
func (s *Schedules) Remove(ctx context.Context, name string) error {
	return failed("remove", name, s.change(ctx, removeText, name))
}

// Send sends the message of a schedule now, also of a paused one, and leaves its ticks unchanged. If Overlap is false
// and the previous message is in the queue, none is sent, and Receipt.Duplicate is set. It costs four round trips.
//
// If the error is an *chanq.OpError that is Unknown, the message may have been sent: with the ID of the Receipt.
func (s *Schedules) Send(ctx context.Context, name string) (receipt chanq.Receipt, err error) {
	found, j, err := s.find(ctx, name)
	if err != nil {
		return receipt, failed("send", name, err)
	}
	q, err := chanq.Open[[]byte](ctx, s.db, found.queue, s.cfg)
	if err != nil {
		return receipt, failed("send", name, err)
	}
	receipts, err := q.Send(ctx, j.at(name, time.Time{}))
	if len(receipts) > 0 {
		receipt = receipts[0]
	}
	return receipt, failed("send", name, err)
}

// found is where a schedule sends, and when.
type found struct {
	now               time.Time
	queue, line, zone string
}

func (s *Schedules) find(ctx context.Context, name string) (f found, j job, err error) {
	var now int64
	columns, done := j.columns()
	err = queryRow(ctx, s.db, render(s.names, jobText), []any{name}, append([]any{&now, &f.queue, &f.line, &f.zone}, columns...)...)
	if errors.Is(err, sql.ErrNoRows) {
		return f, j, ErrNoSchedule
	}
	f.now = timeOf(now)
	if err == nil {
		err = done()
	}
	return f, j, err
}

// change runs a statement that changes one row.
func (s *Schedules) change(ctx context.Context, text string, args ...any) error {
	var changed string // not the count of rows, which a server with NOCOUNT ON leaves out
	err := queryRow(ctx, s.db, render(s.names, text), args, &changed)
	if errors.Is(err, sql.ErrNoRows) {
		return ErrNoSchedule
	}
	return err
}

// awake makes Run read the table.
func (s *Schedules) awake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// failed returns an error with what has failed, or nil. name is "" if it is not about one schedule.
func failed(op, name string, err error) error {
	switch {
	case err == nil:
		return nil
	case name == "":
		return fmt.Errorf("chanq: %s schedules: %w", op, err)
	case errors.Is(err, chanq.ErrNoSchema): // of its queue
		err = fmt.Errorf("%w; or remove the schedule, for example by the command: chanq schedule remove %q", err, name)
	}
	return fmt.Errorf("chanq: %s schedule %.120q: %w", op, name, err)
}
