package order

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/sqlbatch"
)

// one is a Sequencer that owns slot 0, with its own time.
type one struct {
	*Sequencer
	t   *testing.T
	now time.Duration
}

// content is the contents of the message with this number, of one byte.
type content int64

func (content) Bytes() int { return 1 }

func newOne(t *testing.T, old int64, change ...func(*Config)) *one {
	cfg := Config{Unread: 4, Blocked: 100, Bytes: 1 << 20, Behind: 100, Holds: true, MaxCrashes: 3,
		Traits: sqlbatch.Traits{ClaimRows: 100}}
	for _, c := range change {
		c(&cfg)
	}
	o := &one{New(cfg), t, time.Second}
	o.Take([]Slot{{Number: 0, Fence: 10, Old: old}}, o.now)
	return o
}

// plan returns the next task of this kind. Earlier reads find no rows, and refills end where they begin.
func (o *one) plan(kind Kind) *Task {
	o.t.Helper()
	o.now += 100 * time.Millisecond
	for range 4 {
		t := o.Plan(Budget{Room: 10, Items: 10, Fetch: 10, Poll: kind == Read || kind == Refill}, o.now)
		if t != nil && t.Kind == kind {
			return t
		}
		switch {
		case t == nil:
		case t.Kind == Read:
			o.answer(t, 0)
		case t.Kind == Refill:
			o.Answer(t, &Answer{Walked: true, Drawn: o.reads.water.drawn, Redriven: o.redriven(), Upto: t.From}, o.now)
		default:
			require.Nil(o.t, t)
		}
	}
	require.FailNow(o.t, "no such task", "kind %d", kind)
	return nil
}

func row(seq int64) Row {
	return Row{ID: [16]byte{byte(seq)}, Seq: seq, Key: "a", Keyed: true, Contents: content(seq)}
}

// answer answers a read or a refill. If drawn is 0, it is the number of the last sample.
func (o *one) answer(t *Task, drawn int64, rows ...Row) {
	o.t.Helper()
	a := Answer{Walked: true, Drawn: max(drawn, o.reads.water.drawn), Redriven: o.redriven(), Upto: None, Rows: rows}
	require.False(o.t, o.Answer(t, &a, o.now))
}

// known answers a task of messages.
func (o *one) known(t *Task, rows ...Row) {
	o.t.Helper()
	require.False(o.t, o.Answer(t, &Answer{Walked: true, Redriven: o.redriven(), Rows: rows}, o.now))
}

func (o *one) read(drawn int64, seqs ...int64) {
	o.t.Helper()
	var rows []Row
	for _, seq := range seqs {
		rows = append(rows, row(seq))
	}
	o.answer(o.plan(Read), drawn, rows...)
}

func (o *one) redriven() int64 { return max(0, o.queues.held.redriven) }

func (o *one) next() (seqs []int64) {
	for _, d := range o.Deliver(10, o.now) {
		seqs = append(seqs, d.Seq)
	}
	return seqs
}

// one delivers the only deliverable message.
func (o *one) one() Delivery {
	o.t.Helper()
	list := o.Deliver(10, o.now)
	require.Len(o.t, list, 1)
	return list[0]
}

func (o *one) settled(d Delivery, how Outcome, until time.Duration) {
	o.Settled(d.Message, d.Fence, how, until, o.now)
}

func TestRowsAfterTheEndOfAStragglerWaitForItsMessages(t *testing.T) {
	o := newOne(t, 0)
	for range 6 { // the sender of number 1 becomes a straggler, and the watermark passes it
		r := o.plan(Read)
		require.False(t, o.Answer(r, &Answer{Walked: true, Drawn: 2, Senders: []string{"s"}, Upto: None}, o.now))
	}
	require.GreaterOrEqual(t, o.reads.walks[0].safe, int64(2))
	o.read(3, 3) // number 1 has committed, and then the next message of its key was sent
	require.Empty(t, o.next())
	r := o.plan(Read)
	require.Zero(t, r.From)
	o.answer(r, 3, row(1), row(3))
	require.Equal(t, []int64{1}, o.next())
}

func TestRowsOfARefillWaitForACatchUp(t *testing.T) {
	o := newOne(t, 0, func(c *Config) { c.Unread = 1 })
	sender := []string{"s"}
	rows := func(seqs ...int64) (rows []Row) {
		for _, seq := range seqs {
			rows = append(rows, row(seq))
		}
		return rows
	}
	for range 6 { // the sender of number 4 straggles
		o.Answer(o.plan(Read), &Answer{Walked: true, Drawn: 6, Senders: sender, Upto: None, Rows: rows(2, 3, 5, 6)},
			o.now)
	}
	require.Equal(t, 1, len(o.mem.spilled))
	for range 2 {
		o.settled(o.one(), Acked, 0)
	}
	r := o.plan(Refill)
	o.Answer(r, &Answer{Walked: true, Drawn: 6, Upto: None, Rows: rows(5, 6)}, o.now) // it has ended
	require.Empty(t, o.next())
	o.answer(o.plan(Read), 6, rows(4, 5, 6)...)
	require.Equal(t, []int64{4}, o.next())
}

func TestARowThatHasEndedDuringAReadIsNotTakenFromItsAnswer(t *testing.T) {
	o := newOne(t, 0)
	o.read(1, 1)
	d := o.one()
	r := o.plan(Read)
	o.settled(d, Acked, 0)
	o.answer(r, 1, row(1))
	require.Zero(t, o.mem.keys)
}

func TestARowThatWasReleasedDuringAReadIsTakenOnceMore(t *testing.T) {
	o := newOne(t, 0)
	o.read(1, 1)
	d := o.one()
	r := o.plan(Read)
	o.settled(d, Dead, 0)
	redriven := row(1)
	redriven.Fence = GivenFence(0, d.Fence) + 1
	o.answer(r, 1, redriven)
	require.Len(t, o.queues.slots[0].keys[keyName{"a", true}].all, 1)
}

// The redrive is known, and the message was read again, before the outcome of its dead-lettering is known.
func TestAKeyThatIsHeldDoesNotOpenIfARedriveIsNewerThanTheDelivery(t *testing.T) {
	o := newOne(t, 0)
	o.read(2, 1, 2)
	d := o.one()
	redriven := row(1)
	redriven.Fence = GivenFence(0, d.Fence) + 1
	for range 2 { // an answer that reports the redrive, and the catch-up
		o.Answer(o.plan(Read), &Answer{Walked: true, Drawn: 2, Redriven: 1, Upto: None, Rows: []Row{redriven, row(2)}},
			o.now)
	}
	require.False(t, o.reads.walks[0].pending())
	o.settled(d, Dead, 0)
	o.Answer(o.plan(Held), &Answer{Walked: true, Redriven: 1, Held: []bool{false}}, o.now)
	require.Empty(t, o.next())
	r := o.plan(Read)
	require.Zero(t, r.From)
	o.answer(r, 2, redriven, row(2))
	require.Equal(t, []int64{1}, o.next())
}

// A message that commits late might be below the spilled number, and precede the spilled messages.
func TestARefillBeginsAtTheWatermark(t *testing.T) {
	o := newOne(t, 0, func(c *Config) { c.Unread = 1 })
	var rows []Row
	for _, seq := range []int64{2, 3, 5, 6} {
		rows = append(rows, row(seq))
	}
	o.Answer(o.plan(Read), &Answer{Walked: true, Drawn: 6, Senders: []string{"s"}, Upto: None, Rows: rows}, o.now)
	o.settled(o.one(), Acked, 0)
	o.settled(o.one(), Acked, 0)
	r := o.plan(Refill)
	require.Zero(t, r.From)
	o.answer(r, 6, row(4), row(5), row(6))
	require.Equal(t, []int64{4}, o.next())
}

// A message that is out does not count among the messages that a key keeps.
func TestAKeyWhoseLastMessageIsOutIsSpilled(t *testing.T) {
	o := newOne(t, 0, func(c *Config) { c.Unread = 1 })
	o.read(9, 9)
	d := o.one()
	o.Take([]Slot{{Number: 0, Fence: 20}}, o.now)
	o.read(9, 1, 2, 3, 4, 5, 6, 9)
	require.LessOrEqual(t, len(o.queues.slots[0].keys[keyName{"a", true}].all), 3)
	o.settled(d, Acked, 0)
	for seq := int64(1); seq <= 6; seq++ {
		for o.Counts().Ready == 0 {
			var rest []Row
			for n := seq; n <= 6; n++ {
				rest = append(rest, row(n))
			}
			o.answer(o.plan(Refill), 9, rest...)
		}
		require.Equal(t, seq, func() int64 { d := o.one(); o.settled(d, Acked, 0); return d.Seq }())
	}
}

// A message with the ID of a message that has ended is another message.
func TestAnIDThatIsSentAgainIsDelivered(t *testing.T) {
	o := newOne(t, 0)
	o.read(1, 1)
	d := o.one()
	r := o.plan(Read)
	o.settled(d, Acked, 0)
	again := row(2)
	again.ID = d.ID
	o.answer(r, 2, row(1), again)
	require.Equal(t, []int64{2}, o.next())
}

func TestAnIDThatIsSentAgainEndsADeliveryOfUnknownOutcome(t *testing.T) {
	o := newOne(t, 0, func(c *Config) { c.Holds = false })
	o.read(1, 1)
	d := o.one()
	o.settled(d, Unknown, 0)
	lapse := o.plan(Lapse)
	again := row(2)
	again.ID = d.ID
	o.known(lapse, again) // the answer has the ID with another number
	o.answer(o.plan(Read), 2, again)
	require.Equal(t, []int64{2}, o.next())
}

// PostgreSQL assigns numbers again after a crash, if no stored row has them.
func TestANumberThatWasGivenTwice(t *testing.T) {
	o := newOne(t, 0, func(c *Config) { c.Holds = false })
	o.read(3, 1, 2)
	o.Reread()
	second := row(2)
	second.ID, second.Contents = [16]byte{20}, nil
	r := o.plan(Read)
	require.Zero(t, r.From, "all messages are read again after a lost session")
	o.answer(r, 3, row(1), second)
	o.settled(o.one(), Acked, 0)
	o.known(o.plan(Fetch)) // the first message with number 2 is gone
	fetch := o.plan(Fetch)
	require.Equal(t, second.ID, fetch.Messages[0].ID)
	second.Contents = content(second.Seq)
	o.known(fetch, second)
	require.Equal(t, second.ID, o.one().ID)
}

func TestANumberBelowTheCursorIsFoundByTheReadAfterALostSession(t *testing.T) {
	o := newOne(t, 0)
	o.read(5, 5)
	o.read(5)
	require.Equal(t, int64(5), o.reads.walks[0].safe)
	o.Reread()
	r := o.plan(Read)
	require.Zero(t, r.From)
	o.answer(r, 5, row(3))
	require.Equal(t, []int64{3}, o.next())
}

func TestAnAnswerOfAnEarlierTermHasNoEffectOnTheSlot(t *testing.T) {
	o := newOne(t, 0)
	r := o.plan(Read)
	o.lose(o.now)
	o.Take([]Slot{{Number: 0, Fence: 20, Old: 1}}, o.now)
	o.answer(r, 1, row(1))
	require.Zero(t, o.mem.keys)
	require.Zero(t, o.plan(Read).From)
}

func TestAnAnswerOfSlotsThatWereNotWalkedChangesNothing(t *testing.T) {
	o := newOne(t, 0)
	o.read(3)
	require.False(t, o.Answer(o.plan(Read), &Answer{Drawn: 9, Redriven: 1, Upto: None}, o.now))
	require.Zero(t, o.redriven())
	require.Equal(t, int64(3), o.reads.water.drawn)
}

// An event in the answer to a catch-up needs another catch-up, and later rows wait for both.
func TestAnEventDuringACatchUpNeedsAnother(t *testing.T) {
	o := newOne(t, 0)
	o.read(3)
	o.read(3)
	o.Reread()
	r := o.plan(Read)
	require.False(t, o.Answer(r, &Answer{Walked: true, Drawn: 4, Redriven: 1, Upto: None, Rows: []Row{row(4)}}, o.now))
	require.Empty(t, o.next())
	r = o.plan(Read)
	require.Zero(t, r.From)
	o.answer(r, 4, row(4))
	require.Equal(t, []int64{4}, o.next())
}

func TestACatchUpThatIsCutGoesOn(t *testing.T) {
	o := newOne(t, 0, func(c *Config) { c.Behind = 2 })
	o.read(6, 6)
	o.read(6)
	o.Reread()
	o.answer(o.plan(Read), 7, row(1), row(2), row(7))
	require.Empty(t, o.next(), "all rows of the key wait for it")
	r := o.plan(Read)
	require.Equal(t, int64(2), r.From)
	require.Zero(t, r.Rows)
	o.answer(r, 7, row(3))
	require.False(t, o.reads.walks[0].pending())
}

func TestTheRowsAboveTheWatermarkAreBounded(t *testing.T) {
	o := newOne(t, 0, func(c *Config) { c.Behind = 2 })
	sender := []string{"s"}
	answer := func(r *Task, rows ...Row) {
		o.Answer(r, &Answer{Walked: true, Drawn: 9, Senders: sender, Upto: None, Rows: rows}, o.now)
	}
	answer(o.plan(Read), row(1), row(2))
	answer(o.plan(Read), row(1), row(2))
	require.Zero(t, o.plan(Read).Rows)
}

func TestAKeyIsNotForgottenAsHeldDuringARead(t *testing.T) {
	o := newOne(t, 0)
	o.read(1, 1)
	o.settled(o.one(), Dead, 0)
	held := o.plan(Held)
	r := o.plan(Read) // its snapshot precedes the dead letter: row 2 does not show that the key is held
	o.Answer(held, &Answer{Walked: true, Held: []bool{true}}, o.now)
	o.answer(r, 2, row(2))
	require.Empty(t, o.next())
}

func TestAMarkOfAnEarlierTermIsRepeated(t *testing.T) {
	o := newOne(t, 5)
	earlier := row(1)
	earlier.Holder, earlier.Fence, earlier.Contents = Mine, 9, nil
	o.answer(o.plan(Read), 5, earlier)
	require.Equal(t, int64(1), o.plan(Mark).Messages[0].Seq)
}

func TestAnOutcomeOfAnEarlierDeliveryHasNoEffect(t *testing.T) {
	o := newOne(t, 0)
	o.read(1, 1)
	first := o.one()
	o.settled(first, Given, 0)
	again := row(1)
	again.Fence = 11
	o.known(o.plan(Fetch), again)
	second := o.one()
	o.settled(first, Acked, 0)
	require.Equal(t, 1, o.Busy(0))
	o.settled(second, Acked, 0)
	require.Zero(t, o.Busy(0))
}

// A late mark must not match, so that a write raises the fence.
func TestAMarkOfUnknownOutcomeIsUndone(t *testing.T) {
	o := newOne(t, 5)
	o.answer(o.plan(Read), 5, row(1))
	o.Answer(o.plan(Mark), nil, o.now)
	o.now += time.Second
	undo := o.plan(Release)
	applied := marked(row(1))
	applied.Contents = nil
	o.known(undo, applied) // the row has the fence of the mark
	o.known(o.plan(Fetch), marked(row(1)))
	require.Equal(t, []int64{1}, o.next())
}

func TestAMarkThatMatchesNothingIsRepeatedBeforeTheContentsAreRead(t *testing.T) {
	o := newOne(t, 5)
	o.answer(o.plan(Read), 5, row(1))
	changed := row(1)
	changed.Fence, changed.Contents = 7, nil
	o.known(o.plan(Mark), changed)
	require.Equal(t, int64(7), o.plan(Mark).Messages[0].Fence)
}

func TestAMessageAboveTheSpilledNumberWaitsForTheRefill(t *testing.T) {
	o := newOne(t, 0, func(c *Config) { c.Unread = 1 })
	o.read(9, 9)
	d := o.one()
	o.Take([]Slot{{Number: 0, Fence: 20}}, o.now)
	o.read(9, 1, 2, 3, 9)
	o.settled(d, Given, 0)
	o.settled(o.one(), Acked, 0) // number 1
	require.Nil(t, o.Plan(Budget{Items: 10, Fetch: 10}, o.now))
	require.Empty(t, o.next())
	o.answer(o.plan(Refill), 9, row(2), row(3), row(9))
	require.Equal(t, []int64{2}, o.next())
}

// Walks whose cursors are equal are merged. Rows that wait for a catch-up of either walk wait for that of both.
func TestWalksThatMeetHaveOneCatchUp(t *testing.T) {
	o := newOne(t, 0)
	o.read(2)
	o.read(2)
	o.Take([]Slot{{Number: 1, Fence: 20}}, o.now)
	o.read(2)
	for len(o.reads.walks) > 1 { // the second walk reads up to the cursor of the first one
		o.answer(o.plan(Read), 2)
	}
	o.Reread()
	o.Take([]Slot{{Number: 2, Fence: 30}}, o.now)
	o.reads.walks[1].cursor = o.reads.walks[0].cursor
	o.Reread()
	gate := o.mem.events
	r := o.plan(Read)
	require.Len(t, o.reads.walks, 1)
	require.Len(t, r.Slots, 3)
	require.Less(t, o.reads.walks[0].done, gate)
	o.answer(r, 2)
	require.GreaterOrEqual(t, o.reads.walks[0].done, gate)
}

func TestForgottenNumbersAreReported(t *testing.T) {
	o := newOne(t, 0)
	o.read(5, 5)
	require.True(t, o.Answer(o.plan(Read), &Answer{Walked: true, Drawn: 4, Upto: None}, o.now))
}

func TestAKeyThatIsHeldOpensOnlyAfterAReadThatBeganAfterTheRedrive(t *testing.T) {
	o := newOne(t, 0)
	o.read(2, 1, 2)
	o.settled(o.one(), Dead, 0)
	require.Empty(t, o.next())
	held := o.plan(Held)
	require.Equal(t, []string{"a"}, held.Keys)
	o.Answer(held, &Answer{Walked: true, Redriven: 1, Held: []bool{false}}, o.now) // the dead message was redriven
	require.Empty(t, o.next())
	r := o.plan(Read)
	require.Zero(t, r.From)
	first := row(1)
	first.Fence = 12
	o.Answer(r, &Answer{Walked: true, Drawn: 2, Redriven: 1, Upto: None, Rows: []Row{first, row(2)}}, o.now)
	require.Equal(t, []int64{1}, o.next())
}

func TestAKeyOpensWhileEachAnswerReportsAnotherRedrive(t *testing.T) {
	o := newOne(t, 0)
	o.read(2, 1, 2)
	o.settled(o.one(), Dead, 0)
	o.Answer(o.plan(Held), &Answer{Walked: true, Redriven: 1, Held: []bool{false}}, o.now)
	first := row(1)
	first.Fence = 12
	for redriven := range int64(2) { // the first answer brings the message, and reports a redrive that might precede it
		require.Empty(t, o.next())
		o.Answer(o.plan(Read), &Answer{Walked: true, Drawn: 2, Redriven: 2 + redriven, Upto: None,
			Rows: []Row{first, row(2)}}, o.now)
	}
	require.Equal(t, []int64{1}, o.next())
}

func TestAHeadThatAnotherProgramEndedClosesItsKeyUntilItIsKnownNotToBeHeld(t *testing.T) {
	o := newOne(t, 0)
	first := row(1)
	first.Wait = 10 * time.Second
	o.answer(o.plan(Read), 2, first, row(2))
	o.now += lookEvery
	o.known(o.plan(Look))
	require.Empty(t, o.next())
	o.Answer(o.plan(Held), &Answer{Walked: true, Held: []bool{true}}, o.now)
	require.Empty(t, o.next())
	o.now += lookEvery
	o.Answer(o.plan(Held), &Answer{Walked: true, Held: []bool{false}}, o.now)
	require.Equal(t, []int64{2}, o.next())
}

// TestAPolicyThatHoldsClosesWhatIsInMemory shows that keys in memory stay closed until the database has answered.
func TestAPolicyThatHoldsClosesWhatIsInMemory(t *testing.T) {
	o := newOne(t, 0, func(c *Config) { c.Holds = false })
	o.answer(o.plan(Read), 10, row(1))
	o.SetPolicy(true, func(int) int { return 0 }, o.now)
	require.Empty(t, o.Deliver(10, o.now))
	held := o.plan(Held)
	require.Equal(t, []string{"a"}, held.Keys)
	require.False(t, o.Answer(held, &Answer{Walked: true, Redriven: o.redriven(), Held: []bool{false}}, o.now))
	require.Len(t, o.Deliver(10, o.now), 1)
}
