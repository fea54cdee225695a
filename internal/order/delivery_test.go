package order

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// At MaxExtend the lease has ended in the process. The row is released with an expired lease before the next delivery.
func TestADeliveryOfUnknownOutcomeIsEndedByAWrite(t *testing.T) {
	o := newOne(t, 0)
	o.read(2, 1, 2)
	d := o.one()
	o.settled(d, Unknown, 0)
	lapse := o.plan(Lapse)
	require.Empty(t, o.next())
	o.Answer(lapse, nil, o.now) // also unknown
	require.Empty(t, o.next())
	o.now += time.Second
	lapse = o.plan(Lapse)
	locked := row(1)
	o.known(lapse, locked) // neither written nor gone: a transaction has locked the row
	o.now += time.Second
	o.known(o.plan(Lapse), Row{ID: d.ID, Seq: 1, Fence: 11, Lapses: 1, Written: true})
	o.settled(d, Acked, 0) // too late: no effect
	o.known(o.plan(Mark), Row{ID: d.ID, Seq: 1, Fence: 12, Lapses: 1, Written: true})
	again := row(1)
	again.Fence, again.Holder, again.Lapses = 12, Mine, 1
	o.known(o.plan(Fetch), again)
	require.Equal(t, int64(12), o.one().Fence)
}

func TestAMessageThatIsAckedInATransactionIsLookedAt(t *testing.T) {
	o := newOne(t, 0)
	o.read(2, 1, 2)
	d := o.one()
	until := o.now + 5*time.Second
	o.settled(d, InTx, until)
	o.known(o.plan(Look), row(1))
	require.Empty(t, o.next())
	o.settled(d, Returned, 0)
	o.known(o.plan(Look)) // the transaction has committed
	require.Equal(t, []int64{2}, o.next())
}

func TestATransactionThatWasRolledBackLeadsToARedelivery(t *testing.T) {
	// The Look finds no lock and the handler has returned, or the lease ends
	for _, unlocked := range []bool{true, false} {
		o := newOne(t, 0)
		o.read(2, 1, 2)
		d := o.one()
		o.settled(d, InTx, o.now+5*time.Second)
		seen := row(1)
		if unlocked {
			seen.Lock = Unlocked
			o.known(o.plan(Look), seen)
			require.Empty(t, o.next(), "the handler may settle it after the rollback")
			o.settled(d, Returned, 0)
		} else {
			o.now += 5 * time.Second
		}
		o.known(o.plan(Look), seen)
		o.known(o.plan(Lapse), Row{ID: d.ID, Seq: 1, Fence: 11, Lapses: 1, Written: true})
		o.known(o.plan(Mark), Row{ID: d.ID, Seq: 1, Fence: 12, Lapses: 1, Written: true})
		o.known(o.plan(Fetch), marked(row(1)))
		require.Equal(t, []int64{1}, o.next())
	}
}

// The TTL takes effect at the head of the key, even if the contents were read before it ended.
func TestATTLThatEndsInMemory(t *testing.T) {
	o := newOne(t, 0)
	first, second := row(1), row(2)
	second.Lives = time.Second
	o.answer(o.plan(Read), 2, first, second)
	d := o.one()
	require.False(t, d.Expired)
	o.now += 2 * time.Second
	o.settled(d, Acked, 0)
	require.True(t, o.one().Expired)
}

func TestASlowReadFindsWhatNoOtherReadFound(t *testing.T) {
	o := newOne(t, 0)
	o.read(9, 9)
	o.read(9)
	o.now += slowEvery
	r := o.plan(Read)
	require.Zero(t, r.From)
	o.answer(r, 9, row(4))
	began := o.now
	require.Equal(t, []int64{4}, o.next())
	require.Positive(t, o.plan(Read).From)
	require.GreaterOrEqual(t, o.Due(Budget{}, o.now), began+slowEvery-time.Second)
}

// A mark is a write, and nothing is written to a queue that is paused.
func TestNothingIsMarkedWhileTheQueueIsPaused(t *testing.T) {
	o, all := newOne(t, 0), Budget{Room: 10, Items: 10, Fetch: 10, Lapsed: 2}
	a, b := lapsed(1, "x", 1), lapsed(2, "y", 1)
	o.answer(o.plan(Read), 3, a, b)
	mark := o.plan(Mark)
	o.now += time.Minute
	read := o.Plan(Budget{Room: 10, Items: 10, Poll: true}, o.now)
	require.Equal(t, Read, read.Kind)
	require.False(t, o.Answer(read, &Answer{Redriven: o.redriven(), Upto: None}, o.now), "it was not walked")
	o.known(mark, Row{ID: a.ID, Seq: 1, Fence: 10, Lapses: 1, Written: true})
	require.Nil(t, o.Plan(all, o.now))
	o.now += time.Minute
	all.Poll = true
	o.answer(o.Plan(all, o.now), 3)
	o.known(o.plan(Fetch), marked(a))
	require.Equal(t, []int64{1}, o.next(), "it is resumed")
	require.Equal(t, b.ID, o.plan(Mark).Messages[0].ID)
}

func TestNumbersUpToOldAreMarkedBeforeTheirContentsAreRead(t *testing.T) {
	o := newOne(t, 2)
	rows := []Row{row(1), row(3)}
	rows[1].Key = "b"
	o.answer(o.plan(Read), 3, rows...)
	require.Equal(t, []int64{3}, o.next())
	mark := o.plan(Mark)
	require.Equal(t, int64(10), mark.Messages[0].SlotFence())
	o.known(mark, Row{ID: [16]byte{1}, Seq: 1, Fence: 10, Written: true})
	require.Empty(t, o.next())
	marked := row(1)
	marked.Fence, marked.Holder = 10, Mine
	o.known(o.plan(Fetch), marked)
	require.Equal(t, []int64{1}, o.next())
}

// A message of the same key has committed late, with a smaller number.
func TestAMessageThatIsOvertakenWhileItIsMarkedReturnsItsPlace(t *testing.T) {
	locked := row(2)
	for _, answer := range []Row{{ID: [16]byte{2}, Seq: 2, Fence: 20, Written: true}, locked} {
		o := newOne(t, 5)
		o.Take([]Slot{{Number: 0, Fence: 20, Old: 5, Keys: 1}}, o.now)
		sender := func(r *Task, rows ...Row) {
			o.Answer(r, &Answer{Walked: true, Drawn: 2, Senders: []string{"s"}, Upto: None, Rows: rows}, o.now)
		}
		sender(o.plan(Read), row(2))
		mark := o.plan(Mark)
		sender(o.plan(Read), row(1), row(2))
		o.known(mark, answer)
		require.Equal(t, int64(1), o.plan(Mark).Messages[0].Seq, "written: %v", answer.Written)
	}
}

// lapsed is a message of key k that has lost so many leases.
func lapsed(seq int64, key string, lapses int) Row {
	r := row(seq)
	r.Key, r.Lapses = key, lapses
	return r
}

func marked(r Row) Row {
	r.Fence, r.Holder, r.Contents = 10, Mine, content(r.Seq)
	return r
}

func TestMessagesThatHaveLostALeaseAreMarkedOneByOne(t *testing.T) {
	o := newOne(t, 0)
	a, b := lapsed(1, "x", 1), lapsed(2, "y", 1)
	o.answer(o.plan(Read), 3, a, b, row(3))
	require.Equal(t, []int64{3}, o.next(), "no other message waits for them")
	mark := o.plan(Mark)
	require.Len(t, mark.Messages, 1)
	o.known(mark, Row{ID: a.ID, Seq: 1, Fence: 10, Lapses: 1, Written: true})
	require.Empty(t, o.next(), "its contents are read again after the commit")
	o.known(o.plan(Fetch), marked(a))
	require.Equal(t, []int64{1}, o.next())
	require.Equal(t, b.ID, o.plan(Mark).Messages[0].ID)
	o = newOne(t, 0)
	o.answer(o.plan(Read), 3, a, b)
	require.Len(t, o.Plan(Budget{Room: 10, Items: 10, Lapsed: 2}, o.now).Messages, 2)
}

// TestAKeyWaitsAfterTheSecondExpiredLease: the delay is drawn once by each owner of the slot, and ends.
func TestAKeyWaitsAfterTheSecondExpiredLease(t *testing.T) {
	delays := map[time.Duration]bool{}
	for n := range 40 {
		o := newOne(t, 0)
		o.Take([]Slot{{Number: 0, Fence: int64(20 + n)}}, o.now)
		a := lapsed(1, "x", 2)
		o.answer(o.plan(Read), 2, a, row(2))
		require.Equal(t, []int64{2}, o.next(), "another key")
		began, mark := o.now, (*Task)(nil)
		for mark == nil {
			o.now += time.Second
			require.Less(t, o.now-began, time.Minute+2*time.Second)
			for task := o.Plan(Budget{Room: 10, Items: 10, Fetch: 10},
				o.now); task != nil; task = o.Plan(Budget{Room: 10, Items: 10, Fetch: 10}, o.now) {
				switch task.Kind {
				case Mark:
					mark = task
				case Look: // another program might have ended it
					o.known(task, a)
				default:
					o.answer(task, 2, a)
				}
			}
		}
		delays[(o.now-began)/(15*time.Second)] = true
	}
	require.GreaterOrEqual(t, len(delays), 4, "they are spread over a minute")
}

func TestAMessageThatHasEndedTooManyProcessesIsDeadLettered(t *testing.T) {
	o := newOne(t, 0)
	o.answer(o.plan(Read), 1, lapsed(1, "a", 3))
	require.True(t, o.one().Crashed, "at once, and without a mark")
}

func TestASlotThatIsReturnedReleasesItsMarks(t *testing.T) {
	o := newOne(t, 1)
	o.answer(o.plan(Read), 1, row(1))
	o.known(o.plan(Mark), Row{ID: [16]byte{1}, Seq: 1, Fence: 10, Written: true})
	o.Return(0, o.now)
	require.Empty(t, o.returned())
	o.known(o.plan(Release), Row{ID: [16]byte{1}, Seq: 1, Fence: 11, Written: true})
	require.Equal(t, []Slot{{Number: 0, Fence: 10, Old: 1}}, o.returned())
}

func TestASlotThatIsReturnedWithAnUnknownOutcomeIsInDoubt(t *testing.T) {
	o := newOne(t, 0)
	o.read(1, 1)
	d := o.one()
	o.Return(0, o.now)
	require.Empty(t, o.returned(), "a handler has the message")
	o.settled(d, Unknown, 0)
	o.Answer(o.plan(Lapse), nil, o.now)
	require.Len(t, o.returned(), 1)
	require.True(t, o.Doubt(0))
}

func TestASlotThatIsTakenAgainKeepsWhatIsOut(t *testing.T) {
	o := newOne(t, 0)
	o.read(2, 1, 2)
	d := o.one()
	o.Take([]Slot{{Number: 0, Fence: 20, Old: 2}}, o.now)
	o.answer(o.plan(Read), 2, row(1), row(2))
	require.Nil(t, o.Plan(Budget{Room: 10, Items: 10, Fetch: 10}, o.now),
		"no message of the key is planned while one is out")
	o.settled(d, Acked, 0)
	require.Equal(t, int64(2), o.plan(Mark).Messages[0].Seq)
}

func TestReadingStopsAtTheBoundOfBlockedKeys(t *testing.T) {
	o := newOne(t, 0, func(c *Config) { c.Blocked = 2 })
	a, b := row(1), row(2)
	b.Key = "b"
	a.Wait, b.Wait = time.Hour, time.Hour
	o.answer(o.plan(Read), 2, a, b)
	require.Nil(t, o.Plan(Budget{Room: 10, Items: 10, Fetch: 10, Poll: true}, o.now))
	require.Equal(t, 2, o.Counts().Blocked)
}

func TestContentsThatAreNotDeliverableAreBounded(t *testing.T) {
	o := newOne(t, 0, func(c *Config) { c.Bytes = 100 })
	var rows []Row
	for seq := int64(1); seq <= 5; seq++ {
		r := row(seq)
		r.Contents = sized(40)
		rows = append(rows, r)
	}
	o.answer(o.plan(Read), 5, rows...)
	require.Equal(t, 1, o.Counts().Ready)
	require.LessOrEqual(t, o.mem.bytes, 100)
	require.Empty(t, o.mem.spilled)
}

func TestABlockedKeyIsAsSmallAsDocumented(t *testing.T) {
	const mapEntries = 3 * 64 // in the maps of the slot's keys, the spilled keys and the held keys
	size := unsafe.Sizeof(keyQueue{}) + 5*(unsafe.Sizeof(Message{})+unsafe.Sizeof(timer{})+8) + mapEntries
	require.LessOrEqual(t, size, uintptr(KeyBytes))
}
