package chanq

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/chanq/chanq/internal/order"
	"github.com/chanq/chanq/internal/retry"
	"github.com/chanq/chanq/internal/session"
	"github.com/chanq/chanq/sqlbatch"
)

// An experiment, switched on by the build tag ownerreads: the owner of a slot reads its messages with plain
// SELECTs, and writes when it settles, and when it takes over what another consumer may have delivered.
// Ownership of the slot is the lease.
//
// What to read and to write, and what may be delivered: internal/order, which has the states. Here are the
// statements. The goroutines, all of the consumer's supervisor: claimAll, which makes one statement after another
// (slots, marks, contents, looks, reads) until Stop, and joins run, which makes leases of what may
// be delivered and moves them to the channel. vacate makes the statements that are left until the slots are
// given back. watch waits.
//
// Failures:
//
//	a read without an answer       nothing is delivered that is read from now on until all was read again from 0
//	a mark without an answer       the row is looked at; what was marked has a fence of this term
//	a settle without an outcome    the key stays closed; a release that counts a lapse is written, or the row is gone
//	a lost membership              all slots are dropped; late answers are discarded, since the term is another
//	a slot that another has        its fence does not match: the answer says that it was not walked, a look tells
//	a crash of the process         the next owner marks all up to the last number drawn
type reader[T any] struct {
	c   *shardConsumer[T]
	seq *order.Sequencer

	recall  chan struct{} // of capacity 1: a slot is to be given back
	changed chan struct{} // of capacity 1: there may be something to do
	ready   chan struct{} // of capacity 1: there may be something to deliver
	sent    atomic.Int64
	inHand  atomic.Int64
	hurried atomic.Bool // look at the slots now

	// Of claimAll, and then of vacate.
	loop   retry.Loop
	tenure *tenure
	opened []order.Taken
	olds   map[int]int64
	rest   time.Duration
	pollAt time.Duration
	idle   retry.Backoff
}

const (
	unreadMost  = 4
	blockedMost = 10_000
)

func newReader[T any](c *shardConsumer[T]) *reader[T] {
	r := &reader[T]{
		c: c, recall: make(chan struct{}, 1), changed: make(chan struct{}, 1), ready: make(chan struct{}, 1), olds: map[int]int64{},
		loop: retry.Loop{Health: &c.health, Classify: c.queue.classify}, idle: retry.Backoff{Low: c.cfg.PollMin, High: c.cfg.PollMax},
	}
	most, behind := c.queue.cfg.MaxAttempts, sqlbatch.MostBehind
	if c.queue.dialect.Traits().OneWriter {
		behind = 0
	}
	r.seq = order.New(order.Config{
		Unread: unreadMost, Most: min(256, c.cfg.Prefetch/4), Blocked: blockedMost, Bytes: c.cfg.PrefetchBytes, Behind: behind, Holds: c.queue.cfg.DeadKey == DeadKeyHolds,
		Rows: c.queue.dialect.Traits().ClaimRows,
		Suspect: func(row *order.Row) bool {
			attempts, lapses := row.Attempts, row.Lapses
			if row.Holder != order.Mine {
				attempts++
			}
			if row.Holder == order.Others {
				lapses++
			}
			return isSuspect(attempts, lapses, most)
		},
	}, func() { notify(r.changed); notify(r.ready) })
	r.tenure = newTenure(c.queue.cfg.Slots, c.member.ID, &c.here, r, r, c.queue.wake)
	return r
}

// The reader as the table of slots, and as their user: see slotTable and slotUser.

func (r *reader[T]) look(ctx context.Context, _ []sqlbatch.SlotPart) (slotLook, error) {
	return slotStatements{r.c.queue, r.c.member.ID, r.runIdle}.look(ctx, nil)
}

func (r *reader[T]) take(ctx context.Context, list []ownSlot) (got []ownSlot, err error) {
	numbers := make([]int, len(list))
	for i, own := range list {
		numbers[i] = own.slot
	}
	err = r.runIdle(ctx, r.c.queue.sql.OwnSlots(r.c.member.ID, newSalt(), numbers), func(rows *sql.Rows) error {
		var own ownSlot
		var old int64
		err := rows.Scan(&own.slot, &own.fence, &old)
		got, r.olds[own.slot] = append(got, own), old
		return err
	})
	return got, err
}

func (r *reader[T]) give(ctx context.Context, list []ownSlot) error {
	parts := make([]sqlbatch.SlotPart, len(list))
	for i, own := range list {
		parts[i] = sqlbatch.SlotPart{Slot: own.slot, Fence: own.fence, Doubt: r.seq.Doubts(own.slot)}
	}
	return r.runIdle(ctx, r.c.queue.sql.ReturnSlots(r.c.member.ID, parts), func(rows *sql.Rows) error {
		var slot int
		var fence int64
		return rows.Scan(&slot, &fence)
	})
}

func (r *reader[T]) slotTaken(slot int, fence int64) {
	r.opened = append(r.opened, order.Taken{Slot: slot, Fence: fence, Old: r.olds[slot], Most: r.c.queue.cfg.keysOf(slot)})
}

func (r *reader[T]) slotLeaving(slot int) {
	r.seq.Close(slot)
	r.recallAll()
}

func (r *reader[T]) slotGone(slot int) {
	r.seq.Drop(slot)
	r.recallAll()
}

func (r *reader[T]) handedOut(slot int) int { return r.seq.Busy(slot) }

// recallAll has those look for leases of slots that are to be given back who have some that no
// reader has taken.
func (r *reader[T]) recallAll() {
	notify(r.recall)
	if r.c.merged != nil {
		r.c.merged.recallAll()
	}
}

// runIdle runs a statement about slots.
func (r *reader[T]) runIdle(ctx context.Context, st sqlbatch.Statement, scan func(*sql.Rows) error) error {
	ctx, cancel := context.WithTimeout(ctx, r.c.claimPatience())
	defer cancel()
	run := r.c.sessions.RunPatient
	if r.c.flow.atWork {
		run = r.c.sessions.Run
	}
	err := run(ctx, st, scan)
	mind(r.c, "claim", err)
	return err
}

// tend tends the slots, where something is due.
func (r *reader[T]) tend(ctx context.Context) error {
	now := monotonic()
	if r.hurried.Swap(false) {
		r.tenure.hurry()
	}
	for _, slot := range r.seq.Drained() {
		r.tenure.drained(slot)
	}
	if now < r.rest || r.tenure.wait() > 0 {
		return nil
	}
	look, err := r.tenure.tend(ctx, nil)
	if err != nil {
		r.rest = now + slotsSoon
	}
	if look != nil {
		r.c.count(func(s *ConsumerStats) { s.Looks++ })
	}
	if len(r.opened) > 0 {
		r.seq.Open(r.opened, monotonic())
		r.opened = nil
	}
	return err
}

// claimAll runs until Stop, then gives back what is on the channel, and closes it.
func (r *reader[T]) claimAll() {
	c := r.c
	var apart conc.WaitGroup
	apart.Go(r.run)
	defer func() {
		apart.Wait()
		c.releaseBuffer()
		close(c.out)
	}()
	defer c.rise()
	defer c.caught()
	c.connect()
	if !c.meet(&r.loop) {
		return
	}
	for c.stop.Err() == nil {
		if _, hurried := c.ears.heard(); hurried {
			r.tenure.hurry()
			r.pollAt = 0
		}
		began := time.Now()
		did, failure := r.round()
		if err := r.tend(c.stop); err != nil && failure == nil && c.stop.Err() == nil {
			failure = &retry.Failure{Err: err, Class: c.queue.classify(err), Began: began}
		}
		switch {
		case c.stop.Err() != nil:
		case failure != nil && isPermanent(failure.Class):
			c.broken(c.queue.fail("claim", failure.Err))
			return
		case failure != nil:
			r.failed(failure)
			retry.Sleep(c.stop, r.loop.Failed(c.abandoned, failure))
		case !did:
			r.pause()
		}
	}
}

// failed draws the consequences of a statement that failed. Where the database was away, numbers that it had
// given may be given again.
func (r *reader[T]) failed(f *retry.Failure) {
	var notRun *session.NotRunError
	if f.Class != sqlbatch.RolledBack {
		r.seq.ReadAll()
	}
	if f.Class == sqlbatch.Unknown && !errors.As(f.Err, &notRun) {
		r.c.allowance.halve(max(2, r.c.flow.lastClaim))
	}
}

// pause waits until something is to be done.
func (r *reader[T]) pause() {
	c, now := r.c, monotonic()
	due := min(r.seq.Due(now), r.pollAt)
	room := r.room()
	if room <= 0 {
		due = min(max(due, now), now+100*time.Millisecond)
	}
	if !r.tenure.alive() {
		due = math.MaxInt64
	}
	wait := min(due-now, max(r.tenure.wait(), r.rest-now), time.Minute)
	if room > 0 && r.tenure.alive() {
		if sat := c.beSeated(min(wait, r.pollAt-now)); sat {
			r.pollAt = 0
			return
		}
		wait = min(wait, c.seat.deaf())
	}
	if wait <= 0 {
		if room > 0 {
			return
		}
		wait = time.Millisecond
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-c.stop.Done():
	case <-c.ears.bell:
		c.seat.told()
		r.pollAt = 0
	case _, open := <-c.seat.heard:
		if c.seat.rang(open) {
			r.pollAt = 0
		}
	case <-c.cleared:
	case <-c.progress:
	case <-r.changed:
	case <-timer.C:
	}
}

// room is how many messages there is room for.
func (r *reader[T]) room() int {
	c := r.c
	counts := r.seq.Counts()
	c.flow.delivered = r.sent.Load()
	buffered := c.buffered()
	most := min(c.cfg.Prefetch, max(minClaim, c.flow.takenLately(monotonic(), buffered)))
	buffered += counts.Ready + int(r.inHand.Load())
	room := min(most-buffered, c.queue.dialect.Traits().ClaimRows, c.allowance.bound())
	if c.flow.meanBytes == 0 {
		room = min(room, max(1, c.cfg.PrefetchBytes/c.queue.cfg.MaxBody))
	} else {
		_, merged := c.onChannel()
		fit := c.cfg.PrefetchBytes/c.flow.meanBytes - buffered - merged
		if buffered+merged == 0 {
			fit = max(fit, 1)
		}
		room = min(room, fit)
	}
	if buffered > most/2 || c.crowded() || room <= 0 {
		c.wakeAt.Store(c.taken.Load() + int64(max(1, buffered-most/2)))
		return 0
	}
	c.wakeAt.Store(0)
	return room
}

// do runs a statement once. Its rows count only if the membership lasts, in the same term.
func (r *reader[T]) do(st sqlbatch.Statement, scan func(*sql.Rows) error) (valid bool, failure *retry.Failure) {
	term, lasts := r.c.here.current()
	if !lasts {
		return false, nil
	}
	failure = r.loop.Try(r.c.abandoned, func(context.Context) error { return r.c.runClaim(st, scan) })
	if failure != nil {
		return false, failure
	}
	after, lasts := r.c.here.current()
	return lasts && term == after && r.tenure.alive(), nil
}

// items runs a settle once, and returns which items it changed.
func (r *reader[T]) items(st sqlbatch.Statement) (changed map[[16]byte]int64, valid bool, failure *retry.Failure) {
	changed = map[[16]byte]int64{}
	valid, failure = r.do(st, func(rows *sql.Rows) error {
		var id []byte
		var fence int64
		if err := rows.Scan(&id, &fence); err != nil {
			return err
		}
		changed[[16]byte(id)] = fence
		return nil
	})
	return changed, valid, failure
}

// round makes what statements are due, and reports whether it made any.
func (r *reader[T]) round() (did bool, failure *retry.Failure) {
	if !r.tenure.alive() {
		return false, nil
	}
	if did, failure = r.chores(); failure != nil {
		return did, failure
	}
	room := r.room()
	now := monotonic()
	plan := r.seq.Plan(now, room, now >= r.pollAt)
	if plan == nil {
		if room > 0 && now >= r.pollAt { // nothing is owned, or too much is blocked
			r.pollAt = now + r.c.cfg.PollMin
		}
		return did, nil
	}
	return true, r.read(plan)
}

// read makes a read.
func (r *reader[T]) read(p *order.Read) *retry.Failure {
	c := r.c
	parts := partsOfSlots(p.Slots)
	var st sqlbatch.Statement
	switch p.Kind {
	case order.Refill:
		st = c.queue.sql.ReadKeys(sqlbatch.KeyRead{Member: c.member.ID, Parts: parts, From: p.From, Upto: p.Upto, Rows: p.Rows, Old: p.Old, Keys: p.Keys})
	case order.CatchUp:
		st = c.queue.sql.Read(sqlbatch.SlotRead{Member: c.member.ID, Parts: parts, From: p.From, Cursor: p.Cursor, Upto: p.Upto, Rows: p.Rows, Old: math.MaxInt64})
	default:
		c.seat.answer()
		st = c.queue.sql.Read(sqlbatch.SlotRead{Member: c.member.ID, Parts: parts, From: p.From, Cursor: p.Cursor, Upto: p.Upto, Rows: p.Rows, Old: p.Old, Keys: p.Keys})
	}
	rows := readRows{taken: p.Slots}
	start := monotonic()
	valid, failure := r.do(st, rows.scan)
	if !valid {
		r.seq.Failed(p)
		return failure
	}
	took := monotonic() - start
	got := 0
	for i := range rows.found {
		if rows.found[i].Seq > p.Cursor && rows.found[i].Content != nil {
			got++
		}
	}
	if !rows.status.Walked {
		for _, own := range p.Slots {
			r.tenure.unscanned(own.Slot)
		}
	}
	if r.seq.Answer(p, &rows.status, rows.found, monotonic()) {
		r.tenure.doubt()
	}
	if p.Kind != order.Main {
		return nil
	}
	c.flow.atWork = got > 0
	if got > 0 {
		c.allowance.arrived(took, c.claimPatience())
		c.flow.lastClaim, c.flow.meanBytes = got, max(1, rows.bytes/got)
		c.count(func(s *ConsumerStats) { s.Claims++ })
		r.idle.Reset()
		if c.seat.claimed(got >= p.Rows) {
			c.rise()
		}
		pause := r.idle.Pause()
		if got >= worthwhile {
			pause /= 4
		}
		if c.seat.stands {
			pause = min(pause, shortPause)
		}
		r.pollAt = monotonic() + pause
		return nil
	}
	c.count(func(s *ConsumerStats) { s.EmptyClaims++ })
	if c.seat.vain() {
		r.tenure.hurry()
	}
	pause := r.idle.Poll()
	if c.seat.stands && r.seq.Counts().Safe >= r.seq.Counts().Cursor {
		pause = c.cfg.PollMax
	}
	r.pollAt = monotonic() + pause
	return nil
}

func partsOfSlots(slots []order.Taken) []sqlbatch.SlotPart {
	parts := make([]sqlbatch.SlotPart, len(slots))
	for i, s := range slots {
		parts[i] = sqlbatch.SlotPart{Slot: s.Slot, Fence: s.Fence}
	}
	return parts
}

// chores are the statements about messages that are in memory.
func (r *reader[T]) chores() (did bool, failure *retry.Failure) {
	for _, chore := range []func(time.Duration) (bool, *retry.Failure){r.mark, r.fetch, r.lapse, r.release, r.lookAfter, r.askHeld} {
		more, failure := chore(monotonic())
		if failure != nil {
			return did, failure
		}
		did = did || more
	}
	return did, nil
}

func readItemsOf(list []*order.Message, delivery func(*order.Message) int64) []sqlbatch.ReadItem {
	items := make([]sqlbatch.ReadItem, len(list))
	for i, m := range list {
		items[i] = sqlbatch.ReadItem{Item: sqlbatch.Item{ID: m.ID, Fence: m.Fence}, Seq: m.Seq, Delivery: delivery(m)}
	}
	return items
}

// mark marks messages that another consumer may have delivered.
func (r *reader[T]) mark(now time.Duration) (bool, *retry.Failure) {
	list, suspect := r.seq.Marks(r.c.queue.dialect.Traits().AckItems, now)
	if len(list) == 0 {
		return false, nil
	}
	lapses := suspectLapses
	if suspect {
		lapses = math.MaxInt32
	}
	changed, valid, failure := r.items(r.c.queue.sql.Mark(r.c.member.ID, readItemsOf(list, (*order.Message).SlotFence), lapses))
	if !valid {
		r.seq.Marked(list, nil, monotonic())
		return true, failure
	}
	r.seq.Marked(list, func(m *order.Message) bool {
		f, ok := changed[m.ID]
		return ok && f == order.MarkedFence(m.Fence, m.SlotFence())
	}, monotonic())
	return true, nil
}

// fetch reads the contents of messages whose turn it is.
func (r *reader[T]) fetch(now time.Duration) (bool, *retry.Failure) {
	c := r.c
	most := min(c.queue.dialect.Traits().FindIDs, max(1, c.cfg.PrefetchBytes/max(1, c.flow.meanBytes)), c.allowance.bound())
	list, blind := r.seq.Wants(most, now)
	if len(list) == 0 {
		return false, nil
	}
	ids := make([][16]byte, len(list))
	slots := map[int]order.Taken{}
	for i, m := range list {
		ids[i] = m.ID
		if t, ok := r.seq.Slot(m.Slot); ok {
			slots[m.Slot] = t
		}
	}
	var taken []order.Taken
	for _, t := range slots {
		taken = append(taken, t)
	}
	rows := readRows{taken: taken}
	valid, failure := r.do(c.queue.sql.Contents(c.member.ID, partsOfSlots(taken), ids, blind), rows.scan)
	if !valid {
		r.seq.Found(list, &order.Status{}, nil, monotonic())
		return true, failure
	}
	found := make(map[[16]byte]*order.Row, len(rows.found))
	for i := range rows.found {
		found[rows.found[i].ID] = &rows.found[i]
	}
	r.seq.Found(list, &rows.status, found, monotonic())
	return true, nil
}

// lapse gives messages back whose deliveries have an unknown end, or have run out.
func (r *reader[T]) lapse(now time.Duration) (bool, *retry.Failure) {
	list := r.seq.Lapses(r.c.queue.dialect.Traits().NackItems, now)
	if len(list) == 0 {
		return false, nil
	}
	fences, _, failure := r.end(list, sqlbatch.ReadLapsed)
	r.seq.Lapsed(list, func(m *order.Message) int64 {
		if f, known := fences[m.ID]; known {
			return f
		}
		return -2
	}, monotonic())
	return true, failure
}

// end gives messages back, and returns the fences that their rows have then; -1: there is no such row.
func (r *reader[T]) end(list []*order.Message, how sqlbatch.ReadHow) (fences map[[16]byte]int64, valid bool, failure *retry.Failure) {
	items := readItemsOf(list, func(m *order.Message) int64 { return m.Delivery })
	ends := make([]sqlbatch.ReadEnd, len(items))
	for i := range items {
		ends[i] = sqlbatch.ReadEnd{ReadItem: items[i], How: how}
	}
	changed, _, failure := r.items(r.c.queue.sql.SkipLocked().EndRead(ends))
	if failure != nil {
		return nil, false, failure
	}
	fences = map[[16]byte]int64{}
	var missing []*order.Message
	for i, m := range list {
		if f, ok := changed[m.ID]; ok && f == order.GivenFence(m.Fence, items[i].Delivery) {
			fences[m.ID] = f
		} else {
			missing = append(missing, m)
		}
	}
	if len(missing) > 0 {
		seen, failure := r.fencesOf(missing)
		if failure != nil {
			return fences, false, failure
		}
		for id, f := range seen {
			fences[id] = f
		}
	}
	return fences, true, nil
}

// fencesOf are the stored fences of messages; -1: there is no such row.
func (r *reader[T]) fencesOf(list []*order.Message) (map[[16]byte]int64, *retry.Failure) {
	seen, _, failure := r.items(r.c.queue.sql.LookRead(readItemsOf(list, func(m *order.Message) int64 { return 0 })))
	if failure != nil {
		return nil, failure
	}
	for _, m := range list {
		if _, ok := seen[m.ID]; !ok {
			seen[m.ID] = -1
		}
	}
	return seen, nil
}

// release gives back what is marked and not delivered, of slots that are to be given back.
func (r *reader[T]) release(time.Duration) (bool, *retry.Failure) {
	list := r.seq.Releases()
	if len(list) == 0 {
		return false, nil
	}
	fences, _, failure := r.end(list, sqlbatch.ReadReleased)
	r.seq.Released(list, func(m *order.Message) bool { f, ok := fences[m.ID]; return ok && f != m.Fence }, monotonic())
	return true, failure
}

// lookAfter looks after what was acked in transactions.
func (r *reader[T]) lookAfter(now time.Duration) (bool, *retry.Failure) {
	list := r.seq.Looks(r.c.queue.dialect.Traits().FindIDs, now)
	if len(list) == 0 {
		return false, nil
	}
	fences, failure := r.fencesOf(list)
	r.seq.Looked(list, func(m *order.Message) int64 {
		if f, known := fences[m.ID]; known {
			return f
		}
		return -2
	}, monotonic())
	return true, failure
}

// askHeld asks whether dead messages hold keys.
func (r *reader[T]) askHeld(now time.Duration) (bool, *retry.Failure) {
	slots, keys := r.seq.HeldKeys(1000, now)
	if len(keys) == 0 {
		return false, nil
	}
	held, redriven := make([]bool, len(keys)), int64(0)
	valid, failure := r.do(r.c.queue.sql.HeldKeys(slots, keys), func(rows *sql.Rows) error {
		var at, is int64
		if err := rows.Scan(&at, &is, &redriven); err != nil {
			return err
		}
		held[at-1] = is != 0
		return nil
	})
	if valid {
		r.seq.Holds(slots, keys, held, redriven, monotonic())
	}
	return true, failure
}

// run moves messages that may be delivered to the channel, as leases, until Stop, and then gives back what it has
// in hand.
func (r *reader[T]) run() {
	defer r.c.caught()
	var hand []*Lease[T]
	var list []*order.Message
	for r.c.stop.Err() == nil {
		r.inHand.Store(int64(len(hand)))
		if len(hand) == 0 {
			if hand, list = r.next(hand[:0], list[:0]); len(hand) == 0 {
				select {
				case <-r.ready:
				case <-r.recall:
					hand = r.recalled(hand)
				case <-r.c.stop.Done():
				}
				continue
			}
		}
		l := hand[0]
		if !r.tenure.alive() {
			r.giveBack(l.lease)
			hand = hand[1:]
			continue
		}
		select {
		case r.c.out <- l:
			r.c.came(1)
			r.sent.Add(1)
			hand = hand[1:]
		case <-r.recall:
			hand = r.recalled(hand)
		case <-r.c.stop.Done():
		}
	}
	for _, l := range hand {
		r.giveBack(l.lease)
	}
	r.inHand.Store(0)
}

// next makes leases of messages whose turn it is.
func (r *reader[T]) next(hand []*Lease[T], list []*order.Message) ([]*Lease[T], []*order.Message) {
	c := r.c
	if !r.tenure.alive() {
		return hand, list
	}
	until := r.tenure.until()
	list = r.seq.Next(list, min(4*handful, c.cfg.Prefetch))
	if len(list) == 0 {
		return hand, list
	}
	rows, bytes := make([]claimedRow, len(list)), 0
	for i, m := range list {
		rows[i] = *m.Content.(*claimedRow)
		rows[i].item = sqlbatch.Item{ID: m.ID, Fence: m.Fence}
		bytes += len(rows[i].body)
	}
	leases := buildLeases[T](c.queue, rows, c, until, monotonic()+c.cfg.MaxExtend)
	for i, l := range leases {
		m := list[i]
		l.Fence, l.lease.delivery, l.lease.seq, l.lease.entry = m.Delivery, m.Delivery, m.Seq, m
		l.lease.member = &c.member.ID
	}
	r.seq.Delivered(list, func(i int) any { return leases[i].lease })
	holds := partsOf(leases)
	aside := asideOf(holds)
	leases = toDeliver(leases, len(aside))
	c.hold(holds, aside)
	r.sent.Add(int64(len(aside)))
	c.count(func(s *ConsumerStats) { s.Claimed += int64(len(list)) })
	r.inHand.Store(int64(len(leases)))
	if c.queue.cfg.Hooks.Claimed != nil {
		call(c.queue.cfg.Hooks.Claimed, ClaimedEvent{Queue: c.queue.name, Shard: c.queue.shard, Messages: len(list), Bytes: bytes})
	}
	return append(hand, leases...), list
}

// recalled takes back what is on the channel, and in hand, of slots that are to be given
// back, and returns the rest.
func (r *reader[T]) recalled(hand []*Lease[T]) []*Lease[T] {
	mine := len(hand)
	hand = takeAll(r.c.out, hand)
	r.c.came(mine - len(hand))
	r.sent.Add(int64(mine - len(hand)))
	return slices.DeleteFunc(hand, func(l *Lease[T]) bool {
		leaving := r.leaving(l.lease)
		if leaving {
			r.giveBack(l.lease)
		}
		return leaving
	})
}

func (r *reader[T]) giveBack(l *lease) {
	if l.takeBack() {
		r.c.settler.addAll(l)
	}
}

// moved hears of what becomes of leases: see leaseOwner.
func (r *reader[T]) moved(l *lease) {
	m := l.entry
	if m == nil {
		return
	}
	outcome, delay := order.Unknown, time.Duration(0)
	switch l.state.Load() {
	case leaseInTx:
		outcome = order.InTx
	case leaseSettled:
		switch {
		case l.err == ErrSettled, l.err == nil && l.op == settleAck:
			outcome = order.Acked
		case l.err == nil && l.op == settleDead:
			outcome = order.Dead
		case l.err == nil:
			outcome, delay = order.Given, l.delay
		}
	case leaseExpired, leaseLost:
	default:
		return
	}
	r.seq.Settled(m, l, outcome, delay, l.deadlineAt(), monotonic())
}

func (r *reader[T]) awaits(l *lease) bool  { return l.entry != nil && r.seq.Behind(l.entry) }
func (r *reader[T]) leaving(l *lease) bool { return l.entry != nil && r.seq.Leaving(l.entry) }

func (r *reader[T]) returned(l *lease) {
	if l.entry != nil {
		r.seq.Hurry(l.entry, l, monotonic())
	}
}

func (r *reader[T]) uncount() { r.sent.Add(-1) }

func (r *reader[T]) hurry() {
	r.hurried.Store(true)
	notify(r.changed)
}

func (r *reader[T]) stats(s *ConsumerStats) {
	counts := r.seq.Counts()
	s.Buffered += counts.Ready + int(r.inHand.Load())
	s.Waiting, s.Slots = counts.Waiting, counts.Slots
}

func (r *reader[T]) watch(ctx context.Context) { <-ctx.Done() }

// vacate gives the slots back, as their handlers end, until ctx ends, or there are none.
func (r *reader[T]) vacate(ctx context.Context) {
	r.tenure.leave()
	pause := retry.Backoff{Low: r.c.cfg.PollMin, High: r.c.cfg.PollMax}
	for !r.tenure.empty() && ctx.Err() == nil {
		_, failure := r.chores()
		if err := r.tend(ctx); err != nil || failure != nil {
			retry.Sleep(ctx, pause.Pause())
			continue
		}
		if r.tenure.empty() {
			return
		}
		now := monotonic()
		select {
		case <-r.changed:
		case <-ctx.Done():
		case <-time.After(min(time.Second, max(time.Millisecond, min(r.tenure.wait(), r.seq.Due(now)-now)))):
		}
	}
}
