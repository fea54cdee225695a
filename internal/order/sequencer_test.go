package order

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// one is a sequencer that owns one slot, and has its own time.
type one struct {
	*Sequencer
	t   *testing.T
	now time.Duration
}

func newOne(t *testing.T) *one {
	o := &one{New(Config{Unread: 4, Blocked: 100, Bytes: 1 << 20, Behind: 100, Holds: true, Rows: 100}, func() {}), t, time.Second}
	o.Open([]Taken{{Slot: 0, Fence: 10}}, o.now)
	return o
}

func (o *one) plan() *Read {
	o.t.Helper()
	o.now += 100 * time.Millisecond
	r := o.Plan(o.now, 10, true)
	require.NotNil(o.t, r)
	return r
}

func (o *one) read(drawn int64, senders []string, seqs ...int64) {
	o.t.Helper()
	o.answer(o.plan(), drawn, senders, seqs...)
}

func (o *one) answer(r *Read, drawn int64, senders []string, seqs ...int64) {
	var rows []Row
	for _, seq := range seqs {
		rows = append(rows, Row{ID: [16]byte{byte(seq)}, Seq: seq, Key: "a", Keyed: true, Content: seq, Bytes: 1})
	}
	require.False(o.t, o.Answer(r, &Status{Walked: true, Drawn: drawn, Senders: senders, Upto: None}, rows, o.now))
}

func (o *one) next() (seqs []int64) {
	list := o.Next(nil, 10)
	o.Delivered(list, func(int) any { return o })
	for _, m := range list {
		seqs = append(seqs, m.Seq)
	}
	return seqs
}

func TestWhatIsReadAfterTheEndOfAStragglerWaitsForItsMessages(t *testing.T) {
	o := newOne(t)
	for range 6 { // the sender of number 1 becomes a straggler, and the watermark passes it
		o.read(2, []string{"s"})
	}
	require.GreaterOrEqual(t, o.Counts().Safe, int64(2))
	o.read(3, nil, 3) // it has committed, and then its key's next message was sent
	require.Empty(t, o.next())
	r := o.plan()
	require.Zero(t, r.From)
	o.answer(r, 3, nil, 1, 3)
	require.Equal(t, []int64{1}, o.next())
}

func TestWhatHasEndedWhileAReadWasUnderWayIsNotTakenFromItsAnswer(t *testing.T) {
	o := newOne(t)
	o.read(1, nil, 1)
	list := o.Next(nil, 1)
	o.Delivered(list, func(int) any { return o })
	r := o.plan()
	o.Settled(list[0], o, Acked, 0, 0, o.now)
	o.answer(r, 1, nil, 1)
	require.Empty(t, o.next())
}

func TestAKeyThatIsHeldOpensOnlyAfterAReadThatBeganAfterTheRedrive(t *testing.T) {
	o := newOne(t)
	o.read(2, nil, 1, 2)
	list := o.Next(nil, 1)
	o.Delivered(list, func(int) any { return o })
	o.Settled(list[0], o, Dead, 0, 0, o.now)
	require.Empty(t, o.next())
	slots, keys := o.HeldKeys(10, o.now)
	require.Equal(t, []string{"a"}, keys)
	o.Holds(slots, keys, []bool{false}, 1, o.now) // it was redriven
	require.Empty(t, o.next())
	r := o.plan()
	require.Zero(t, r.From)
	require.False(t, o.Answer(r, &Status{Walked: true, Drawn: 2, Redriven: 1, Upto: None},
		[]Row{{ID: [16]byte{1}, Seq: 1, Key: "a", Keyed: true, Fence: 12, Content: 1, Bytes: 1}, {ID: [16]byte{2}, Seq: 2, Key: "a", Keyed: true}}, o.now))
	o.now += 2 * heldEvery
	slots, keys = o.HeldKeys(10, o.now)
	o.Holds(slots, keys, []bool{false}, 1, o.now)
	require.Equal(t, []int64{1}, o.next())
}
