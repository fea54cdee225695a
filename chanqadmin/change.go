package chanqadmin

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/sqlbatch"
)

// stepRows is how many rows one statement of a change may change, and on an ordered queue read in each slot. It is small, so that the
// statement holds its locks briefly.
const stepRows = 1000

// Change has the options of a change, and records by whom and why it is made.
type Change struct {
	// Actor makes the change, for this Reason. Both are in the log of changes; a pause also stores them in the row of the queue.
	// Default: host/pid and none. Range: at most 400 bytes of UTF-8 each, without NUL.
	Actor  string
	Reason string
	// Limit is the most messages that are changed. Default: no limit.
	Limit int
	// PerSecond is the most messages that are changed per second. The change waits between its steps. Default: no limit.
	PerSecond int
	// DryRun changes nothing: Changed counts the messages of the selection. Default: false.
	DryRun bool
	// Progress is called after each step with the number of messages changed so far. Default: none.
	Progress func(changed int)
	// Log receives a record of the change after its end. Default: none.
	Log *slog.Logger
	// Unlogged is called if a change that was made is not in the log of changes (see Log), or its end is not, for example because the role
	// may not write there. Default: none.
	Unlogged func(error)
}

// Changed is the result of a change, or of a Change.DryRun.
type Changed struct {
	Messages int
	// More reports that a DryRun reached DryRunLimit, so there may be more messages.
	More bool
	// IDs are those of Select.IDs that were changed.
	IDs []chanq.ID
}

// DryRunLimit is the most messages that a DryRun reads.
const DryRunLimit = 10_000

// check returns all errors of a Change.
func (c *Change) check() error {
	var errs []error
	bound := func(field string, n int) {
		if n < 0 {
			errs = append(errs, fmt.Errorf("%s is %d: must be 0 (no limit) or more", field, n))
		}
	}
	text := func(field, text string) {
		if len(text) > sqlbatch.MaxPauseText || !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			errs = append(errs, fmt.Errorf("%s is %.63q, %d bytes: must be at most %d bytes of UTF-8 without NUL", field, text, len(text), sqlbatch.MaxPauseText))
		}
	}
	bound("Change.Limit", c.Limit)
	bound("Change.PerSecond", c.PerSecond)
	text("Change.Actor", c.Actor)
	text("Change.Reason", c.Reason)
	return errors.Join(errs...)
}

// actor returns Actor, or its default.
func (c *Change) actor() string {
	if c.Actor != "" {
		return c.Actor
	}
	host, _ := os.Hostname()
	return fmt.Sprintf("%.200s/%d", strings.ToValidUTF8(host, ""), os.Getpid())
}

// Purge deletes the messages that are in Select.State when it is called, also leased ones, and returns how many. Messages that enter the
// state later stay, so Purge ends even while producers send. With an error it returns the count so far. Purge may leave messages that are
// currently locked. By Select.IDs, which must be of dead messages, it waits for locked messages.
//
// With a Cause, a Type or a Key, Purge finds the messages first and then changes them by their IDs. It waits for locked ones, and it
// includes a message that was redriven and is dead again within these milliseconds, whatever its new cause.
//
// Purge reads the database's time and then runs statements of up to 1,000 messages, each of which begins where the previous one ended.
// With a Cause, a Type or a Key each step is two statements, and with a Cause without a Fingerprint there are at least two per group.
// Live messages of a plain queue have these costs for each priority. Those of an ordered queue cost one more round trip per 1,000
// messages. By IDs it is one statement per 400 messages on SQL Server, per 1,000 elsewhere. Statements that the database
// rolls back are repeated.
//
// A DryRun costs the reads of up to DryRunLimit messages.
func (q *Queue) Purge(ctx context.Context, s Select, c Change) (Changed, error) {
	if s.IDs != nil && s.State != StateDead {
		return Changed{}, q.refuse("purge", "Select.State is %q: must be dead with Select.IDs; Cancel deletes live messages by their IDs", s.State)
	}
	return q.change(ctx, &change{op: "purge", Select: s, Change: c, byID: q.sql.Discard, whole: q.sql.Purge})
}

// Redrive makes dead messages ready again, earliest end first, with no attempts counted and without an expiry, and returns how many.
// Select.State must be StateDead or empty. A message that is dead-lettered again during the call stays dead, and so does a message whose ID or
// DedupKey is in the queue again. With DeadKeyHolds the key of such a message stays closed until it is purged, or is redriven after the
// live message has ended. A DryRun also counts such messages. After each step Redrive notifies idle consumers as a send does, those of
// other processes only through a Notifier.
//
// Messages that are dead-lettered after the call of Redrive stay dead. It may also leave messages that are currently locked: call it
// again. With an error it returns the count so far. Steps and costs are those of Purge.
func (q *Queue) Redrive(ctx context.Context, s Select, c Change) (Changed, error) {
	if s.State == "" {
		s.State = StateDead
	}
	if s.State != StateDead {
		return Changed{}, q.refuse("redrive", "Select.State is %q: must be dead or empty, since only dead messages can be redriven", s.State)
	}
	s.IDs = slices.Clone(s.IDs)
	slices.SortFunc(s.IDs, func(a, b chanq.ID) int { return bytes.Compare(a[:], b[:]) })
	s.IDs = slices.Compact(s.IDs) // a message that is dead-lettered again meanwhile is redriven once
	byID := func(ids [][16]byte) sqlbatch.Statement { return q.sql.Redrive(len(ids), ids, sqlbatch.Window{}) }
	whole := func(_ sqlbatch.State, n int, w sqlbatch.Window) sqlbatch.Statement { return q.sql.Redrive(n, nil, w) }
	return q.change(ctx, &change{op: "redrive", Select: s, Change: c, byID: byID, whole: whole, wakes: true})
}

// Cancel deletes ready, scheduled or leased messages by their IDs, and returns the ones that it found. A handler that is working on one is
// cancelled: see chanq.Queue.Cancel. Only IDs may be set in Select. Costs are those of Purge by IDs. Find returns IDs by DedupKeys.
func (q *Queue) Cancel(ctx context.Context, s Select, c Change) (Changed, error) {
	if s.State != "" || s.All || s.filtered() || s.IDs == nil {
		return Changed{}, q.refuse("cancel", "Select must have IDs and nothing else; Purge deletes the messages of a state")
	}
	s.State = StateReady // the statement does not check the state
	return q.change(ctx, &change{op: "cancel", Select: s, Change: c, byID: q.sql.Cancel})
}

// RunNow makes scheduled messages due now by their IDs, for example before a retry, and returns the ones it found. Attempts stay. It notifies
// idle consumers as Redrive does. Only IDs may be set in Select. A message of an ordered queue cannot be run: it waits for earlier ones of its
// Key. It costs as much as Purge by IDs.
func (q *Queue) RunNow(ctx context.Context, s Select, c Change) (Changed, error) {
	switch {
	case s.State != "" || s.All || s.filtered() || s.IDs == nil:
		return Changed{}, q.refuse("run now", "Select must have IDs and nothing else")
	case q.ordered():
		return Changed{}, q.refuse("run now", "the queue is ordered: its messages are not scheduled")
	}
	s.State = StateScheduled
	return q.change(ctx, &change{op: "run now", Select: s, Change: c, byID: q.sql.RunNow, wakes: true})
}

// change is one call of Purge, Redrive, Cancel, RunNow or Release.
type change struct {
	op string
	Select
	Change
	byID  func([][16]byte) sqlbatch.Statement
	whole func(sqlbatch.State, int, sqlbatch.Window) sqlbatch.Statement // of the messages of a window
	wakes bool
	which string // what the log of changes says instead of the Select; "": the Select

	began time.Time
	done  Changed
}

// errLimit ends a change at its Limit.
var errLimit = errors.New("the limit is reached")

func (q *Queue) change(ctx context.Context, c *change) (Changed, error) {
	err := errors.Join(q.checkChange(&c.Select), c.Change.check())
	if err == nil && c.DryRun && c.IDs != nil {
		err = errors.New("Change.DryRun is set with Select.IDs: must be false, since there is nothing to count; Get returns a message")
	}
	switch {
	case err != nil:
		return Changed{}, q.refuse(c.op, "%w", err)
	case c.DryRun:
		err = unlimited(q.dryRun(ctx, c))
	default:
		err = q.logged(ctx, c.op, cmp.Or(c.which, c.Select.String()), &c.Change, func() (int, error) {
			if c.IDs != nil {
				err = q.changeIDs(ctx, c, c.IDs)
			} else {
				err = q.changeAll(ctx, c)
			}
			return c.done.Messages, unlimited(err)
		})
	}
	if c.Log != nil {
		c.record(ctx, q.Label(), err)
	}
	return c.done, err
}

// unlimited returns the error of a change, nil at its Limit.
func unlimited(err error) error {
	if errors.Is(err, errLimit) {
		return nil
	}
	return err
}

// record writes the change to its log.
func (c *change) record(ctx context.Context, queue string, err error) {
	log := c.Log.With("queue", queue, "actor", c.actor(), "reason", c.Reason, "messages", c.done.Messages, "dry_run", c.DryRun, "select", c.Select)
	if err != nil {
		log.ErrorContext(ctx, "chanq: "+c.op+" failed", "error", err)
	} else {
		log.InfoContext(ctx, "chanq: "+c.op)
	}
}

// room waits until PerSecond allows another step, and returns how many messages it may change. At the Limit it returns errLimit.
func (q *Queue) room(ctx context.Context, c *change) (n int, err error) {
	n = stepRows
	if c.Limit > 0 {
		if n = min(n, c.Limit-c.done.Messages); n == 0 {
			return 0, errLimit
		}
	}
	if c.PerSecond == 0 {
		return n, nil
	}
	if c.began.IsZero() {
		c.began = time.Now()
	}
	due := c.began.Add(time.Duration(float64(c.done.Messages) / float64(c.PerSecond) * float64(time.Second)))
	batch.Sleep(ctx, time.Until(due))
	return min(n, c.PerSecond), q.fail(c.op, context.Cause(ctx))
}

// changed ends a step that has changed messages.
func (q *Queue) changed(c *change, n int) {
	if c.done.Messages += n; n > 0 && c.wakes {
		q.queue.Wake()
	}
	if c.Progress != nil {
		c.Progress(c.done.Messages)
	}
}

// changeIDs changes the messages with these IDs.
func (q *Queue) changeIDs(ctx context.Context, c *change, ids []chanq.ID) error {
	for len(ids) > 0 {
		n, err := q.room(ctx, c)
		if err != nil {
			return err
		}
		n = min(n, len(ids), q.dialect.Traits().FindIDs)
		found, err := collect(ctx, q, c.op, c.byID(raw(ids[:n])), placeOfRow)
		if err != nil {
			return err
		}
		if c.IDs != nil {
			for _, p := range found {
				c.done.IDs = append(c.done.IDs, p.ID)
			}
		}
		q.changed(c, len(found))
		ids = ids[n:]
	}
	return nil
}

func raw(ids []chanq.ID) [][16]byte {
	list := make([][16]byte, len(ids))
	for i := range ids {
		list[i] = ids[i]
	}
	return list
}

// changeAll changes the messages of a selection without IDs.
func (q *Queue) changeAll(ctx context.Context, c *change) error {
	w, err := q.window(ctx, c)
	switch {
	case err != nil:
		return err
	case c.walked():
		return q.walk(ctx, c, w, func(_ int, ids []chanq.ID) error { return q.changeIDs(ctx, c, ids) })
	case !c.State.live():
		return q.changeWindow(ctx, c, w)
	case q.ordered():
		return q.changeBySeq(ctx, c, w)
	}
	for p := sqlbatch.PriorityUrgent; p >= sqlbatch.PriorityLow; p-- {
		w.Priority = int8(p)
		if err := q.changeWindow(ctx, c, w); err != nil {
			return err
		}
	}
	return nil
}

// changeBySeq changes the live messages of an ordered queue in steps that each read a limited number of messages: a few waiting or leased
// messages may be among millions of ready ones, and one statement that reads all of them would take too long.
func (q *Queue) changeBySeq(ctx context.Context, c *change, w sqlbatch.Window) (err error) {
	for w.Upto < math.MaxInt64 {
		if w.Upto, err = q.reach(ctx, c.op, w.After, stepRows); err != nil {
			return err
		}
		if err := q.changeWindow(ctx, c, w); err != nil {
			return err
		}
		w.After = w.Upto
	}
	return nil
}

// window returns the window of all messages that exist now, by the database's clock. It waits for the end of the current millisecond, so
// that messages that come later are not in the window.
func (q *Queue) window(ctx context.Context, c *change) (w sqlbatch.Window, err error) {
	err = q.once(ctx, q.sql.Clock(), func(rows *sql.Rows) error { return rows.Scan(&w.Before) })
	if err != nil {
		return w, q.fail(c.op, err)
	}
	w.Before++
	if !c.Before.IsZero() {
		w.Before = max(1, min(w.Before, c.Before.UnixMilli())) // 0 is no bound
	}
	batch.Sleep(ctx, 2*time.Millisecond)
	return w, q.fail(c.op, context.Cause(ctx))
}

// changeWindow changes the messages of a window in steps, until a step changes none. A step that changes fewer messages than it may is
// not the last one, since a redrive leaves messages whose keys are taken. One that changes none is repeated once in a redrive: all of its
// keys might have been taken while it ran, and the repetition leaves them out. Each step begins after the last row of the previous step, so
// that it does not read rows that the previous step deleted or left.
func (q *Queue) changeWindow(ctx context.Context, c *change, w sqlbatch.Window) error {
	for empty := false; ; {
		n, err := q.room(ctx, c)
		if err != nil {
			return err
		}
		found, err := collect(ctx, q, c.op, c.whole(sqlbatch.State(c.State), n, w), placeOfRow)
		if err != nil || len(found) == 0 && (empty || !c.wakes) {
			return err
		}
		empty = len(found) == 0
		for _, p := range found {
			p.advance(&w)
		}
		q.changed(c, len(found))
	}
}

// place is the ID of a message, and its position in the order of the statement.
type place struct {
	chanq.ID
	at int64
}

// placeOfRow reads a row with an ID and, for some statements, a place.
func placeOfRow(rows *sql.Rows) (p place, err error) {
	var id sql.RawBytes
	columns, err := rows.Columns()
	if err == nil {
		err = rows.Scan([]any{&id, &p.at}[:len(columns)]...)
	}
	copy(p.ID[:], id)
	return p, err
}

// advance moves the start of the window after the message. Rows come in any order, so it never moves back.
func (p place) advance(w *sqlbatch.Window) {
	if from, last := w.First(math.MinInt64); p.at > from || p.at == from && bytes.Compare(p.ID[:], last[:]) > 0 {
		w.After, w.AfterID = p.at, p.ID
	}
}

// walked is a dead message that a walk found.
type walked struct {
	place
	kind, key string
}

// walk reads the dead messages of a window in steps of up to stepRows, in each group the earliest end first. After each step it calls do
// with the number of messages read and the IDs of those that the change selects. A step ends at the last message that may be changed now.
func (q *Queue) walk(ctx context.Context, c *change, w sqlbatch.Window, do func(looked int, ids []chanq.ID) error) error {
	return q.eachGroup(ctx, c.op, &c.Select, func(g *sqlbatch.Group) error {
		for w := w; ; {
			most := stepRows
			if !c.DryRun { // wait before the walk, because its messages are changed immediately
				n, err := q.room(ctx, c)
				if err != nil {
					return err
				}
				most = n
			}
			step, err := collect(ctx, q, c.op, q.sql.Walk(g, stepRows, w), q.walkedOfRow)
			if err != nil {
				return err
			}
			var ids []chanq.ID
			looked := 0
			for ; looked < len(step) && len(ids) < most; looked++ {
				m := &step[looked]
				if m.advance(&w); c.like(m.kind, m.key) {
					ids = append(ids, m.ID)
				}
			}
			if err := do(looked, ids); err != nil {
				return err
			}
			if looked < stepRows && looked == len(step) {
				return nil
			}
		}
	})
}

func (q *Queue) walkedOfRow(rows *sql.Rows) (m walked, err error) {
	var id, kind, key sql.RawBytes
	columns := []any{&id, &m.at, &kind}
	if q.ordered() {
		columns = append(columns, &key)
	}
	err = rows.Scan(columns...)
	copy(m.ID[:], id)
	m.kind, m.key = string(kind), string(key)
	return m, err
}

// dryRun counts the messages of a selection.
func (q *Queue) dryRun(ctx context.Context, c *change) error {
	if c.State != StateDead {
		return q.countListed(ctx, c)
	}
	w, err := q.window(ctx, c)
	if err != nil {
		return err
	}
	looked := 0
	return q.walk(ctx, c, w, func(n int, ids []chanq.ID) error {
		if err := c.count(len(ids)); err != nil {
			return err
		}
		if looked += n; looked >= DryRunLimit {
			c.done.More = true
			return errLimit
		}
		return nil
	})
}

// count counts messages of a dry run. At the Limit it returns errLimit.
func (c *change) count(n int) error {
	if c.done.Messages += n; c.Limit > 0 && c.done.Messages >= c.Limit {
		c.done.Messages, c.done.More = c.Limit, false
		return errLimit
	}
	return nil
}

// countListed counts by lists, which together read about DryRunLimit messages. A page that is not full has read as many as a List may, or is
// the last one.
func (q *Queue) countListed(ctx context.Context, c *change) error {
	looked := 0
	for l := (List{Limit: MostListed}); looked < DryRunLimit; {
		page, err := q.List(ctx, c.Select, l)
		if err != nil {
			return err
		}
		if err := c.count(len(page.Entries)); err != nil {
			return err
		}
		if c.done.More, l.After = page.Next != "", page.Next; !c.done.More {
			return nil
		}
		if looked += len(page.Entries); len(page.Entries) < l.Limit {
			looked += mostLooked
		}
	}
	return nil
}
