package claim_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/claim"
	"github.com/chanq/chanq/internal/lease"
	"github.com/chanq/chanq/internal/notify"
	"github.com/chanq/chanq/internal/table"
	"github.com/chanq/chanq/sqlbatch"
)

// row is a message of a plain queue in memory.
type row struct {
	id       byte
	priority int8
	due      time.Duration // of base.Now
	size     int
	fence    int64
	leased   bool
	lost     bool // its lease has expired
	lapses   int
	expired  bool
}

// queue is a plain queue, and the consumer that claims from it.
type queue struct {
	t *testing.T

	mu    sync.Mutex // guards what follows; no statement takes time under it
	rows  []row
	calls []string
	fail  func(op string) error // before the statement; nil: none fails
	lost  func(op string) error // after it
	takes time.Duration         // each statement
	scans time.Duration         // a rescan, in addition
	slow  []bool                // the rescans on sessions of housekeeping
	bad   byte                  // the ID of a message that cannot be read

	plain    *claim.Plain
	pace     *claim.Pace
	given    []byte // to readers
	tracked  []*lease.Lease
	settled  []settled
	others   atomic.Int64 // other leases that are held
	broken   error
	buffered int
	key      notify.Key
	freed    int
	cleared  chan struct{}
	stop     context.CancelFunc
	ended    chan struct{}
}

// settled is a settle that was stored.
type settled struct {
	id    byte
	op    lease.Op
	text  string
	delay time.Duration
	quiet bool
}

// health discards the reports of a loop.
type health struct{}

func (health) Worked(time.Time)        {}
func (health) Failed(time.Time, error) {}

func newQueue(t *testing.T, change func(*claim.Config)) *queue {
	q := &queue{t: t, key: notify.Key{Queue: t.Name()}, cleared: make(chan struct{}, 1), ended: make(chan struct{})}
	stop, cancel := context.WithCancel(t.Context())
	q.stop = cancel
	subscription := notify.NewSubscription(&notify.Debouncer{}, nil)
	waiter := q.key.Wait()
	t.Cleanup(waiter.Close)
	db := &sql.DB{}
	n := claim.Join(notify.Key{DB: db})
	t.Cleanup(n.Leave)
	cfg := claim.Config{
		Limits: claim.Limits{
			Times:    lease.Times{LeaseFor: 30 * time.Second, MaxExtend: time.Hour, StatementTimeout: 10 * time.Second},
			Prefetch: 100, PrefetchBytes: 1 << 20, MaxCrashes: 8, PollEvery: time.Second,
		},
		Traits: sqlbatch.Traits{ClaimRows: 1000},
		Queue: &table.Queue{Classify: func(err error) sqlbatch.Class {
			switch err {
			case errRolledBack:
				return sqlbatch.RolledBack
			case errMissing:
				return sqlbatch.NoSchema
			}
			return sqlbatch.Unknown
		}},
		Health: health{}, Stop: stop, Abandoned: t.Context(), Home: &lease.Home{Owner: owner{}, Parent: t.Context()},
		Neighbours:   n,
		Subscription: &subscription, Waiter: waiter, Cleared: q.cleared,
		Holder: holder{q},
	}
	cfg.Queue.SetPolicy(sqlbatch.Policy{MaxBody: 1 << 10})
	if change != nil {
		change(&cfg)
	}
	q.pace = claim.NewPace(cfg)
	q.plain = claim.NewPlain(q.pace, q, [16]byte{1})
	q.pace.Serve(q)
	return q
}

// holder holds the leases of a queue's consumer.
type holder struct{ *queue }

func (holder) Lose(l *lease.Lease, to lease.State)                     { l.Lose(to) }
func (holder) Backlogged() bool                                        { return false }
func (h holder) Held() (leases, handlers int)                          { return 1 + int(h.others.Load()), 0 }
func (holder) Delay(*lease.Lease, *table.Claimed, error) time.Duration { return time.Minute }
func (holder) Describe(*lease.Lease, *table.Claimed)                   {}
func (holder) Claimed([]table.Claimed)                                 {}
func (h holder) Delivered(n, _ int, _ time.Duration)                   { h.note(fmt.Sprint("delivered ", n)) }
func (h holder) Broken(_ string, err error)                            { h.broken = err; h.stop() }
func (holder) PassOn()                                                 {}
func (h holder) Freed()                                                { h.freed++ }

var errMissing = errors.New("there is no table")

// owner ignores the end of its leases.
type owner struct{}

func (owner) Settle(context.Context, *lease.Lease) error { return nil }
func (owner) Extend(context.Context, *lease.Lease, time.Duration) (bool, error) {
	return false, nil
}
func (owner) Expire(*lease.Lease)     {}
func (owner) Expedite()               {}
func (owner) Changed(...*lease.Lease) {}

// run claims for d, and then stops.
func (q *queue) run(d time.Duration) {
	go func() {
		defer close(q.ended)
		q.plain.Run()
		q.plain.Finish(q.t.Context())
	}()
	time.Sleep(d)
	q.stop()
	<-q.ended
}

// read delivers the available leases to readers.
func (q *queue) read() {
	for b := q.plain.Source().Next(10); len(b.Leases) > 0; b = q.plain.Source().Next(10) {
		for _, l := range b.Leases {
			q.mu.Lock()
			q.given = append(q.given, l.Item.ID[0])
			q.mu.Unlock()
		}
	}
}

func (q *queue) call(op string, format string, args ...any) error {
	q.note(strings.TrimSpace(op + " " + fmt.Sprintf(format, args...)))
	time.Sleep(q.takes)
	if q.fail != nil {
		return q.fail(op)
	}
	return nil
}

func (q *queue) note(call string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.calls = append(q.calls, call)
}

func (q *queue) after(op string) error {
	if q.lost != nil {
		return q.lost(op)
	}
	return nil
}

// made returns the calls of the given kinds.
func (q *queue) made(kinds ...string) (calls []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range q.calls {
		if op, _, _ := strings.Cut(c, " "); slices.Contains(kinds, op) {
			calls = append(calls, c)
		}
	}
	return calls
}

// first returns the first calls.
func (q *queue) first(n int) string { return strings.Join(q.calls[:min(n, len(q.calls))], ", ") }

func (q *queue) claimed(r *row, into *table.ClaimedRows, bare bool) {
	r.leased = true
	r.fence += 10
	c := table.Claimed{Item: sqlbatch.Item{ID: [16]byte{r.id}, Fence: r.fence}, Expired: r.expired, Size: r.size,
		LeftOut: bare || r.size > into.Inline}
	c.Priority, c.Due, c.Attempts, c.Lapses = r.priority, r.due.Milliseconds(), 1+r.lapses, r.lapses
	into.Rows = append(into.Rows, c)
}

func (q *queue) Claim(_ time.Duration, c sqlbatch.ClaimParams, into *table.ClaimedRows) error {
	if err := q.call("claim", "%d", c.Rows); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.rows {
		r := &q.rows[i]
		if r.leased || r.due > base.Now() || len(into.Rows) == c.Rows {
			continue
		}
		if r.id == q.bad && c.Inline >= 0 {
			return errAway
		}
		q.claimed(r, into, c.Inline < 0)
	}
	return q.after("claim")
}

func (q *queue) Rescue(_ time.Duration, p sqlbatch.RescueParams) (places []table.Lost, err error) {
	if err := q.call("rescue", "%d", p.From.ID[0]); err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.rows {
		if r := &q.rows[i]; r.lost && r.priority == p.Priority {
			r.leased, r.lost = false, false
			r.fence++
			if r.lapses++; r.lapses > 1 && r.lapses < p.MaxCrashes {
				r.due += time.Minute
			}
			places = append(places, table.Lost{Priority: r.priority,
				From: sqlbatch.Head{Due: r.due.Milliseconds(), ID: [16]byte{r.id}}})
		}
	}
	return places, nil
}

func (q *queue) Contents(_ time.Duration, into *table.Claimed) (found bool, err error) {
	err = q.call("contents", "%d", into.Item.ID[0])
	if err == nil && into.Item.ID[0] == q.bad {
		err = errAway
	}
	return err == nil, err
}

func (q *queue) Look(_ time.Duration, ids [][16]byte) (table.Seen, error) {
	seen := table.Seen{Fences: map[[16]byte]int64{}}
	err := q.call("look", "")
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range q.rows {
		if slices.Contains(ids, [16]byte{r.id}) {
			seen.Fences[[16]byte{r.id}] = r.fence
		}
	}
	return seen, err
}

func (q *queue) NextDue(time.Duration, sqlbatch.Heads) (due time.Duration, err error) {
	err = q.call("due", "")
	due = math.MaxInt64
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range q.rows {
		if !r.leased {
			due = min(due, r.due-base.Now())
		}
	}
	return due, err
}

func (q *queue) DueOrLocked(time.Duration) (bool, error) { return false, q.call("locked", "") }

func (q *queue) Rescan(ctx context.Context, slow bool) (r table.Rescan, took time.Duration, err error) {
	began := time.Now()
	q.slow = append(q.slow, slow)
	if err = q.call("rescan", ""); err == nil {
		select {
		case <-time.After(q.scans):
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	r.Known, r.Consumers, r.Due = err == nil, 1, math.MaxInt64
	for _, m := range q.rows {
		r.Lapsed = r.Lapsed || !m.leased && m.lapses > 0
		if m.lost && len(r.Lost) == 0 {
			r.Lost = []table.Lost{{Priority: m.priority, From: sqlbatch.Head{ID: [16]byte{m.id}}}}
		}
	}
	return r, time.Since(began), err
}

func (q *queue) Coming() int   { return 0 }
func (q *queue) Buffered() int { return q.buffered }
func (q *queue) Sent() int64   { return int64(len(q.given)) }

// SettleAll stores settles immediately.
func (h holder) SettleAll(leases ...*lease.Lease) {
	for _, l := range leases {
		d := l.Rare.Read()
		h.settled = append(h.settled, settled{l.Item.ID[0], l.Op, d.Text, d.Delay, d.Quiet})
		h.pace.LeaseEnded()
	}
	lease.Finish(leases, make([]error, len(leases)))
}

func (h holder) Track(leases []*lease.Lease) {
	h.tracked = append(h.tracked, leases...)
	h.note(fmt.Sprintf("track %d, %d wait", len(leases), h.plain.Source().Waiting()))
}

// send adds messages of size bytes, which are due now.
func (q *queue) send(size int, ids ...byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, id := range ids {
		q.rows = append(q.rows, row{id: id, due: base.Now(), size: size, fence: int64(id)})
	}
}

// outcome returns how leases were settled: "2 release".
func (q *queue) outcome() (list []string) {
	for _, l := range q.settled {
		list = append(list, fmt.Sprint(l.id, " ", l.op))
	}
	return list
}

func TestAClaimIsTrackedBeforeReadersGetIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, nil)
		q.send(10, 3, 1, 2)
		q.rows[1].priority = 2
		q.run(10 * time.Millisecond)
		require.Equal(t, "rescan, claim 16, track 3, 0 wait, delivered 3", q.first(4))
		q.read()
		require.Equal(t, []byte{1, 2, 3}, q.given, "in order of priority and due time")
	})
}

func TestWhatHasExpiredIsDeadLetteredAndNotDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, nil)
		q.send(10, 1, 2)
		q.rows[0].expired = true
		q.run(10 * time.Millisecond)
		q.read()
		require.Equal(t, []byte{2}, q.given)
		require.Equal(t, []string{"1 dead-letter"}, q.outcome())
		require.Equal(t, base.ReasonExpired, q.settled[0].text)
	})
}

func TestLargeBodiesAreReadOneByOneUpToPrefetchBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, func(c *claim.Config) {
			c.Queue.SetPolicy(sqlbatch.Policy{MaxBody: 1})
		})
		q.send(400<<10, 1, 2, 3, 4)
		q.run(10 * time.Millisecond)
		require.Equal(t, []string{"contents 1", "contents 2"}, q.made("contents"))
		require.Equal(t, []string{"3 release", "4 release"}, q.outcome()[:2])
		q.read()
		require.Equal(t, []byte{1, 2}, q.given)
	})
}

func TestBodiesThatAreReadAfterTheirClaimKeepTheirPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, func(c *claim.Config) {
			c.Queue.SetPolicy(sqlbatch.Policy{MaxBody: 1})
		})
		q.send(300<<10, 1)
		q.send(10, 2)
		q.send(300<<10, 3)
		q.send(10, 4)
		q.run(10 * time.Millisecond)
		q.read()
		require.Equal(t, []string{"contents 1", "contents 3"}, q.made("contents"))
		require.Equal(t, []byte{1, 2, 3, 4}, q.given)
	})
}

func TestOnlyTheMessageThatCannotBeReadFailsAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, nil)
		q.send(10, 1, 2, 3)
		q.bad = 1
		go func() {
			for {
				select {
				case <-time.After(10 * time.Millisecond):
					q.read()
				case <-q.ended:
					return
				}
			}
		}()
		q.run(10 * time.Second)
		require.Equal(t, []string{"1 nack"}, q.outcome())
		require.Equal(t, time.Minute, q.settled[0].delay)
		require.True(t, q.settled[0].quiet, "the driver's error might quote the unreadable value")
		require.Equal(t, []string{"claim 16", "claim 8", "claim 4", "claim 2", "claim 1", "claim 1"},
			q.made("claim")[:6])
		require.Len(t, q.made("contents"), 2)
		slices.Sort(q.given)
		require.Equal(t, []byte{2, 3}, q.given)
	})
}

func TestExpiredLeasesAreRescuedBeforeTheNextClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, nil)
		q.send(10, 1, 2)
		q.rows[0].leased, q.rows[0].lost = true, true
		time.AfterFunc(5500*time.Millisecond, func() {
			q.read()
			q.pace.LeaseEnded()
		})
		time.AfterFunc(7*time.Second, func() {
			q.read()
			q.mu.Lock()
			defer q.mu.Unlock()
			q.rows[0].lost, q.rows[1].lost = true, true
		})
		q.run(10 * time.Second)
		require.Equal(t, []string{"rescue 1", "claim 1", "track 1, 0 wait", "delivered 1"},
			q.made("rescue", "claim", "track", "delivered")[:4], "and the claim is for one message")
		q.read()
		require.Equal(t, []byte{1, 2, 2}, q.given, "1 is due later, after its second expired lease")
		require.Len(t, q.made("rescue"), 2)
	})
}

func TestAFailedRescueDoesNotStopClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, nil)
		q.send(10, 1, 2)
		q.rows[0].leased, q.rows[0].lost = true, true
		q.fail = func(op string) error {
			if op == "rescue" {
				return errAway
			}
			return nil
		}
		q.run(10 * time.Second)
		q.read()
		require.Equal(t, []byte{2}, q.given)
		require.Greater(t, len(q.made("rescue")), 3, "each rescan is followed by a rescue")
	})
}

func TestAMessageThatHasLostALeaseEndsBeforeTheNextClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, end := range map[string]func(*queue){
			"a lease has ended":      func(q *queue) { q.pace.LeaseEnded() },
			"for as long as a lease": func(*queue) { time.Sleep(31 * time.Second) },
		} {
			q := newQueue(t, nil)
			q.send(10, 1, 2, 3)
			q.rows[0].lapses = 1
			go func() {
				time.Sleep(10 * time.Second)
				q.read()
				time.Sleep(10 * time.Second)
				require.Equal(t, []byte{1}, q.given, name)
				end(q)
				time.Sleep(time.Second)
				q.read()
			}()
			q.run(time.Minute)
			require.Equal(t, []byte{1, 2, 3}, q.given, name)
		}
	})
}

func TestClaimsStayCarefulUntilARescanHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, nil)
		for n := range 20 {
			q.send(10, byte(n+1))
			q.rows[n].lapses = 1
		}
		q.scans = 40 * time.Millisecond // longer than the first message takes
		time.AfterFunc(50*time.Millisecond, func() {
			q.read()
			q.pace.LeaseEnded()
		})
		q.run(70 * time.Millisecond)
		require.Equal(t, []string{"claim 1", "claim 2"}, q.made("claim"))
	})
}

func TestAMessageWithMaxCrashesIsDeadLetteredUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, nil)
		q.send(10<<20, 1, 2)
		q.rows[0].lapses, q.rows[1].lapses = 8, 7
		q.run(10 * time.Millisecond)
		require.Equal(t, []string{"1 dead-letter"}, q.outcome())
		require.Contains(t, q.settled[0].text, "8 attempts; the last 8 leases expired")
		q.read()
		require.Equal(t, []byte{2}, q.given)
		require.Equal(t, []string{"contents 2"}, q.made("contents"))
	})
}

func TestAPermanentFailureEndsTheConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, nil)
		q.fail = func(op string) error {
			if op == "claim" {
				return errMissing
			}
			return nil
		}
		q.run(time.Minute)
		require.Equal(t, errMissing, q.broken)
		require.Len(t, q.made("claim"), 1)
	})
}

func TestAnIdleConsumerLooksInPlaceOfClaiming(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, nil)
		q.run(10 * time.Second)
		require.Len(t, q.made("claim"), 1)
		require.InDelta(t, 16, len(q.made("due", "rescan")), 6, "one per second, after doubling pauses")
	})
}

func TestASignalOfTheProcessEndsAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, nil)
		time.AfterFunc(5500*time.Millisecond, func() {
			q.send(10, 1)
			q.key.Signal()
			synctest.Wait()
			require.Len(t, q.made("claim"), 2)
		})
		q.run(6 * time.Second)
	})
}

func TestClaimsWaitForTheFirstRescanOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, nil)
		q.scans = 900 * time.Millisecond
		q.send(10, 1)
		go func() {
			for n := byte(2); n < 80; n++ { // ends before the consumer
				time.Sleep(300 * time.Millisecond)
				q.read()
				q.send(10, n)
			}
		}()
		q.run(25 * time.Second)
		require.Equal(t, "rescan, claim 16", q.first(2))
		require.Equal(t, []bool{false, true, true}, q.slow,
			"the second one follows after a second, and the third after 19 more")
		q.read()
		require.Len(t, q.given, 79)
	})
}

func TestARescanThatTimesOutIsRepeatedWithTwiceTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, nil)
		q.scans = 35 * time.Second
		q.send(10, 1)
		q.run(5 * time.Minute)
		require.Equal(t, "rescan, claim 16", q.first(2), "claims do not wait for the second one")
		require.Len(t, q.made("rescan"), 3)
		q.read()
		require.Equal(t, []byte{1}, q.given)
	})
}

func TestAReaderThatStopsReadingStopsClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, nil)
		for n := range 100 {
			q.send(10, byte(n+1))
		}
		q.run(10 * time.Second)
		require.Equal(t, []string{"claim 16"}, q.made("claim"), "the maximum in memory if no reader takes any")
		require.Equal(t, 16, q.plain.Source().Waiting())
		require.Len(t, q.plain.Source().Rest(), 16)
		require.Zero(t, q.plain.Source().Waiting())
	})
}

// bell is a Notifier of which each call of Listen gets a channel that has a value.
type bell struct {
	mu              sync.Mutex // guards the following
	heard           chan struct{}
	listens, leaves int
}

func (*bell) Notify(string, int, []int) {}

func (b *bell) Listen(string, []int) (<-chan struct{}, func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.listens++
	b.heard = make(chan struct{}, 1)
	b.heard <- struct{}{}
	return b.heard, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.leaves++
	}
}

func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.heard <- struct{}{}
}

// calls returns the calls of Listen, and of stop.
func (b *bell) calls() [2]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return [2]int{b.listens, b.leaves}
}

func TestAConsumerListensWhileItIsIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bell{}
		subscription := notify.NewSubscription(&notify.Debouncer{Notifier: b}, nil)
		q := newQueue(t, func(c *claim.Config) { c.Subscription = &subscription })
		send := func(id byte, after time.Duration) {
			q.read()
			time.Sleep(after)
			q.send(10, id)
			b.ring()
			synctest.Wait()
			q.read()
		}
		go func() {
			time.Sleep(3 * time.Second)
			require.Equal(t, [2]int{1, 0}, b.calls(), "it is idle")
			due := len(q.made("due", "rescan"))
			send(1, 100*time.Millisecond)
			send(2, 100*time.Millisecond)
			require.Equal(t, []byte{1, 2}, q.given)
			require.Equal(t, [2]int{1, 0}, b.calls(), "each message wakes it")
			time.Sleep(100 * time.Millisecond)
			require.LessOrEqual(t, len(q.made("due", "rescan"))-due, 1, "without a poll after each claim")
			send(3, 100*time.Millisecond)
			send(4, time.Millisecond)
			time.Sleep(10 * time.Millisecond)
			q.read()
			require.Equal(t, []byte{1, 2, 3, 4}, q.given)
			require.Equal(t, [2]int{1, 1}, b.calls(), "polls find the messages as soon")
			time.Sleep(3 * time.Second)
			require.Equal(t, [2]int{2, 1}, b.calls(), "it is idle again")
		}()
		q.run(10 * time.Second)
		require.Equal(t, [2]int{2, 2}, b.calls())
	})
}
