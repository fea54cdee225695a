package chanqtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqjobs"
)

// pace is how Drain waits.
type pace struct {
	idle    time.Duration // how long all queues are idle when it returns: chanqjobs.Batches and Deaths look once per second
	without time.Duration // how long a queue may have no consumer while parts start
	bound   time.Duration // after which it fails
	pause   time.Duration // the longest one between two looks
	unit    string
}

var (
	bubbles = pace{1500 * time.Millisecond, 5 * time.Second, time.Hour, 10 * time.Second, " of the bubble's time"}
	reality = pace{1300 * time.Millisecond, time.Second, 2 * time.Minute, 100 * time.Millisecond, ""}
)

// Drain runs parts of your program until all queues of the test's databases are idle. Then it cancels their context and waits for them. A part
// works until then: chanqjobs.Work, Cron.Run, your run function. Without parts Drain waits for what you have started.
//
// A queue is idle if no message is ready or leased. These do not count: scheduled messages and retries, paused queues, those without a
// consumer, and messages that wait for an earlier one of their key. But Drain waits for the first consumer.
//
// Your test fails if a part returns an error, if all return too early, or after an hour of the bubble's time (outside: 2 min). Drain prints what
// each queue waits for.
func Drain(t testing.TB, parts ...chanqjobs.Part) {
	t.Helper()
	all := databasesOf(t)
	if len(all) == 0 {
		t.Fatal("chanqtest: Drain: this test has no database of chanqtest: use the result of chanqtest.DB, Postgres or Open")
	}
	d := drain{TB: t, pace: reality, all: all, parts: parts, admins: map[string]*chanqadmin.Queue{}, untouched: map[*chanqadmin.Queue]bool{}}
	if inBubble() {
		d.pace = bubbles
	} else if len(parts) == 0 {
		d.idle = 250 * time.Millisecond
	}
	d.until = time.Now().Add(d.bound)
	for _, q := range d.queues() {
		d.untouched[q.Queue] = q.ready()
	}
	for d.once() { // killed by Crash
	}
}

// drain is a call of Drain.
type drain struct {
	testing.TB
	pace
	all    []*database
	parts  []chanqjobs.Part
	until  time.Time
	admins map[string]*chanqadmin.Queue // by database and queue
	// untouched has the queues that were ready at each look, also before the parts began.
	untouched map[*chanqadmin.Queue]bool

	mu      sync.Mutex
	running map[int]bool
}

// once runs the parts until all is idle, and reports whether the program was killed.
func (d *drain) once() (died bool) {
	d.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, db := range d.all {
		db.work(cancel)
	}
	ended := make(chan error, 1)
	d.running = map[int]bool{}
	parts := make([]chanqjobs.Part, len(d.parts))
	for i, part := range d.parts {
		d.running[i] = true
		parts[i] = func(ctx context.Context) error {
			defer func() {
				d.mu.Lock()
				defer d.mu.Unlock()
				delete(d.running, i)
			}()
			return part(ctx)
		}
	}
	go func() { ended <- chanqjobs.Run(ctx, parts...) }()
	failure := d.wait(ended)
	cancel()
	err := d.join(ended)
	for _, db := range d.all {
		died = db.rest() || died
	}
	switch {
	case died:
		clear(d.untouched) // until they expire, its leases and slots keep other consumers from what is ready
		return true
	case err != nil:
		d.Fatalf("chanqtest: Drain: a part returned an error: %v", err)
	case failure != "":
		d.Fatal(failure)
	}
	return false
}

// wait waits until all queues are idle, the program was killed or a part has failed. It returns what is not idle in time.
func (d *drain) wait(ended chan error) string {
	d.Helper()
	began, pause := time.Now(), time.Millisecond
	idle := began  // since then
	var last []int // dead messages at the latest look: a last retry may begin and end between two looks
	served := false
	for {
		select {
		case err := <-ended:
			ended <- err // for join
			if err != nil {
				return ""
			}
			if d.sleep(pause) {
				return ""
			}
		default:
			if d.sleep(pause) {
				return ""
			}
		}
		now := time.Now()
		var busy []*queue
		var dead []int
		queues, running := d.queues(), d.run()
		for _, q := range queues {
			served = served || len(q.consumers) > 0
			d.untouched[q.Queue] = d.untouched[q.Queue] && q.ready()
			dead = append(dead, q.stats.Dead)
		}
		awaited := !served && running > 0 && running == len(d.parts) // the parts start
		for _, q := range queues {
			if q.busy() && (len(q.consumers) > 0 || awaited || now.Sub(began) < d.without) {
				busy = append(busy, q)
			}
		}
		if len(busy) > 0 || !slices.Equal(dead, last) {
			idle, last = now, dead
		}
		switch {
		case len(busy) == 0 && now.Sub(idle) >= d.idle:
			return d.left(queues)
		case !now.Before(d.until):
			if len(busy) == 0 {
				busy = queues // messages die again and again
			}
			return d.report(busy)
		}
		pause = min(2*pause, d.pause, d.until.Sub(now)+time.Millisecond)
		if len(busy) == 0 {
			pause = d.idle / 4
		}
	}
}

// sleep reports whether the program was killed.
func (d *drain) sleep(pause time.Duration) bool {
	time.Sleep(pause)
	for _, db := range d.all {
		if _, dead := db.alive(); dead != nil {
			return true
		}
	}
	return false
}

// join waits until the parts have returned.
func (d *drain) join(ended chan error) error {
	limit := time.NewTimer(d.bound)
	defer limit.Stop()
	select {
	case err := <-ended:
		return err
	case <-limit.C:
		d.mu.Lock()
		defer d.mu.Unlock()
		var which []string
		for i := range d.parts {
			if d.running[i] {
				which = append(which, fmt.Sprint(i+1))
			}
		}
		return fmt.Errorf("part %s of %d has not returned for %v%s after its context was cancelled: it must watch its context",
			strings.Join(which, ", "), len(d.parts), d.bound, d.unit)
	}
}

// queue is the state of a queue.
type queue struct {
	*chanqadmin.Queue
	stats     chanqadmin.Stats
	blocked   int // ready messages of an ordered queue that wait for an earlier one of their key
	consumers []chanqadmin.ConsumerInfo
}

func (q *queue) busy() bool {
	return q.stats.Leased > 0 || q.ready()
}

func (q *queue) ready() bool { return q.stats.Ready > q.blocked && !q.stats.Paused }

// queues reads the states of all queues.
func (d *drain) queues() (list []*queue) {
	d.Helper()
	for _, db := range d.all {
		names, err := chanqadmin.Queues(context.Background(), db.own, chanq.Config{})
		if err != nil {
			d.Fatalf("chanqtest: Drain: %v", err)
		}
		for _, name := range names {
			if q := d.read(db, name); q != nil {
				list = append(list, q)
			}
		}
	}
	return list
}

// read reads the state of a queue, or returns nil if it is being created or dropped.
func (d *drain) read(db *database, name string) *queue {
	d.Helper()
	ctx := context.Background()
	a, err := d.admins[db.name+" "+name], error(nil)
	if a == nil {
		a, err = chanqadmin.Open(ctx, db.own, name, chanq.Config{Durability: chanq.DurabilityAsIs})
		if errors.Is(err, chanq.ErrNoSchema) {
			return nil
		}
		d.admins[db.name+" "+name] = a
	}
	q := &queue{Queue: a}
	if err == nil {
		q.stats, err = a.Stats(ctx)
	}
	if err == nil {
		q.consumers, err = a.Consumers(ctx)
	}
	if err != nil {
		d.Fatalf("chanqtest: Drain: %v", err)
	}
	if spec, _ := a.Opened(); spec.Kind == chanq.KindOrdered && q.stats.Ready > 0 {
		held := map[string]bool{}
		for _, e := range list(d, "Drain", a, chanqadmin.StateScheduled, mostSent) {
			held[e.Key] = true
		}
		if spec.DeadKey == chanq.DeadKeyHolds {
			for _, e := range list(d, "Drain", a, chanqadmin.StateDead, mostSent) {
				held[e.Key] = true
			}
		}
		for _, e := range list(d, "Drain", a, chanqadmin.StateReady, mostSent) {
			if e.Key != "" && held[e.Key] {
				q.blocked++
			}
		}
	}
	return q
}

// run returns how many parts run.
func (d *drain) run() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.running)
}

// left returns an error if nothing ran: the parts have no queue, or messages wait although the test runs neither a part nor a consumer.
func (d *drain) left(queues []*queue) string {
	d.Helper()
	switch {
	case len(queues) == 0 && len(d.parts) > 0:
		return "chanqtest: Drain: the databases of this test have no queue: open the queues of the parts on the result of chanqtest.DB, " +
			"Postgres or Open, in the default schema"
	case d.run() > 0:
		return ""
	}
	var left []*queue
	for _, q := range queues {
		if len(q.consumers) > 0 {
			return ""
		}
		if q.busy() && (len(d.parts) == 0 || d.untouched[q.Queue]) {
			left = append(left, q)
		}
	}
	if len(left) == 0 {
		return ""
	}
	return "chanqtest: Drain: messages wait, and no consumer runs:\n" + texts(d, left)
}

func (d *drain) report(busy []*queue) string {
	d.Helper()
	return fmt.Sprintf("chanqtest: Drain: the queues are not idle after %v%s:\n%s", d.bound, d.unit, texts(d, busy))
}

// texts describes what queues wait for, and what to do.
func texts(t testing.TB, queues []*queue) string {
	t.Helper()
	var text strings.Builder
	for _, q := range queues {
		s := q.stats
		fmt.Fprintf(&text, "queue %q: %d ready, %d leased, %d scheduled, %d dead", q.Name(), s.Ready-q.blocked, s.Leased, s.Scheduled, s.Dead)
		if q.blocked > 0 {
			fmt.Fprintf(&text, ", %d wait for an earlier one of their key", q.blocked)
		}
		if s.Paused {
			text.WriteString(", paused")
		}
		text.WriteString("\n")
		for _, state := range []chanqadmin.State{chanqadmin.StateLeased, chanqadmin.StateReady, chanqadmin.StateScheduled} {
			for _, e := range list(t, "Drain", q.Queue, state, 2) {
				by := ""
				if e.LeasedBy != "" {
					by = " by " + e.LeasedBy
				}
				fmt.Fprintf(&text, "  %s%s: %s %v\n", state, by, e.ID, messageOf(e))
			}
		}
		names := make([]string, len(q.consumers))
		for i, c := range q.consumers {
			names[i] = c.Name
		}
		slices.Sort(names)
		switch {
		case len(names) == 0:
			text.WriteString("  no consumer runs: pass a part that handles this queue, for example chanqjobs.Work(queue, 1, handler, chanq.ConsumerConfig{})\n")
		case s.Leased > 0:
			fmt.Fprintf(&text, "  a handler of %s has not returned: it waits for something that does not happen in the test, or it sleeps; let it watch its context\n",
				strings.Join(names, ", "))
		default:
			fmt.Fprintf(&text, "  %s does not take them, or sends or releases them again and again: see its handler, and set Config.Hooks to chanq.LogHooks\n",
				strings.Join(names, ", "))
		}
	}
	return text.String()
}
