package order

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// costly is a database with one key whose index keeps the entries of all rows that have ended, as it does while a
// snapshot is open. A statement takes time for each number that it walks, and fails if it exceeds its timeout.
type costly struct {
	*one
	drawn   int64
	rows    []int64 // numbers of messages that have not ended
	senders []string

	base   time.Duration // of each statement
	number time.Duration // for each statement that sent
	most   time.Duration
	failed int
	longer time.Duration // the longest statement that did not fail
}

const perStatement = 1 << 20 // numbers: see sqlbatch.SeqBits

func newCostly(t *testing.T, statements int64) *costly {
	o := newOne(t, 0, func(c *Config) { c.Behind = 20_000 })
	return &costly{one: o, drawn: statements * perStatement, base: 10 * time.Millisecond, number: 10 * time.Microsecond,
		most: 10 * time.Second}
}

// send draws numbers for some statements. The last one stores a message.
func (c *costly) send(statements int64) {
	c.drawn += statements * perStatement
	c.rows = append(c.rows, c.drawn)
}

// step runs the next statement, if there is one, and acks the messages that it returned.
func (c *costly) step() (acked int) {
	t := c.Plan(Budget{Room: 10, Items: 10, Fetch: 10, Poll: true}, c.now)
	if t == nil {
		c.now += 10 * time.Millisecond
		return 0
	}
	a := &Answer{Walked: true, Drawn: c.drawn, Senders: c.senders, Redriven: c.redriven(), Upto: None}
	end := min(t.Upto, c.drawn)
	if t.Kind == Read && t.Rows == 0 {
		end = min(end, t.Cursor)
	}
	for _, seq := range c.rows {
		if seq > t.From && seq <= end {
			a.Rows = append(a.Rows, Row{ID: [16]byte{byte(seq >> 20), byte(seq >> 28), byte(seq >> 36)}, Seq: seq,
				Key: "a", Keyed: true, Contents: content(seq)})
		}
	}
	took := c.base + max(0, time.Duration((end-t.From)/perStatement))*c.number
	if took > c.most {
		c.now += c.most
		c.failed++
		c.Reread() // the session was lost
		c.Answer(t, nil, c.now)
		return 0
	}
	c.longer = max(c.longer, took)
	c.now += took
	require.False(c.t, c.Answer(t, a, c.now))
	for _, d := range c.Deliver(10, c.now) {
		require.Equal(c.t, c.rows[0], d.Seq)
		c.rows = c.rows[1:]
		c.settled(d, Acked, 0)
		acked++
	}
	return acked
}

// flow sends a message every 100 ms of the given time, and returns the longest time that one of them waited for its
// delivery.
func (c *costly) flow(d time.Duration) (most time.Duration) {
	var sent []time.Duration
	for end, next := c.now+d, c.now; c.now < end || len(sent) > 0; {
		for ; next <= c.now && next < end; next += 100 * time.Millisecond {
			c.send(100)
			sent = append(sent, next)
		}
		n := c.step()
		for _, at := range sent[:n] {
			most = max(most, c.now-at)
		}
		sent = sent[n:]
		require.Less(c.t, c.now, end+time.Hour, "no message is delivered")
	}
	return most
}

// A snapshot keeps the entries of half an hour at 1,000 statements per second: a read from the beginning takes 18 s.
func TestReadsFromTheBeginningDelayNoMessageHoweverLongTheyTake(t *testing.T) {
	c := newCostly(t, 0)
	require.LessOrEqual(t, c.flow(30*time.Minute), time.Second)
	require.Zero(t, c.failed)
	require.LessOrEqual(t, c.longer, time.Second)
}

// The consumer starts when a snapshot has kept the entries of many statements. A whole read takes 50 s; a statement may
// take 10 s.
func TestAnOwnerFindsTheFirstMessageBehindManyEntriesOfDeletedRows(t *testing.T) {
	c := newCostly(t, 5_000_000)
	require.LessOrEqual(t, c.flow(10*time.Minute), 3*time.Minute)
	require.LessOrEqual(t, c.failed, 4)
	require.LessOrEqual(t, c.flow(10*time.Minute), time.Second)

	c.failed = 0
	c.Reread() // messages wait for the end of a catch-up, which takes 50 s as a whole
	require.LessOrEqual(t, c.flow(10*time.Minute), 2*time.Minute)
	require.Zero(t, c.failed)
}

// On a slow network even a read that walks few numbers takes long.
func TestReadsGetLongerAgainOnASlowNetwork(t *testing.T) {
	c := newCostly(t, 10_000_000)
	c.base, c.number = 70*time.Millisecond, 0
	c.flow(time.Second)
	require.Zero(t, c.reads.walks[0].span)

	failed := c.Plan(Budget{Room: 10, Items: 10, Fetch: 10, Poll: true}, c.now)
	c.now += time.Millisecond
	c.Reread()
	c.Answer(failed, nil, c.now)
	require.Zero(t, c.reads.walks[0].span, "a broken connection does not bound reads")
	require.LessOrEqual(t, c.flow(10*time.Second), time.Second)

	c.reads.walks[0].span = leastSpan
	c.Reread()
	require.LessOrEqual(t, c.flow(10*time.Second), 2*time.Second)
}

// PostgreSQL's reads never wait for row locks: if the database cancels a read, it has timed out.
func TestAReadThatTheDatabaseEndsIsBoundedAndNotSplit(t *testing.T) {
	o := newOne(t, 0)
	o.Take([]Slot{{Number: 1, Fence: 1}, {Number: 2, Fence: 1}}, o.now)
	o.reads.water.drawn = 1 << 40
	for range 3 {
		r := o.plan(Read)
		o.now += time.Second
		require.False(t, o.Blocked(r))
		o.Answer(r, nil, o.now)
		o.now += time.Second
	}
	require.Len(t, o.reads.walks, 1)
	require.Positive(t, o.reads.walks[0].span)
}

// While there is no room, a slow read that is due does not keep the reader awake.
func TestNothingIsDueWithoutRoomWhileTheLastReadWasCut(t *testing.T) {
	o := newOne(t, 0)
	o.read(9, 1, 2, 3)
	o.reads.walks[0].more = true
	o.now += time.Hour
	require.Nil(t, o.Plan(Budget{Items: 10, Fetch: 10}, o.now))
	require.Greater(t, o.Due(Budget{Items: 10, Fetch: 10}, o.now), o.now)
}

// A sender that stays open does not keep reads from beginning where the others have ended.
func TestAReadBeginsNearTheLastNumberHoweverLongASenderStaysOpen(t *testing.T) {
	c := newCostly(t, 0)
	c.flow(time.Second)
	c.senders = []string{"s"}
	c.flow(10 * time.Minute)
	require.LessOrEqual(t, c.drawn-c.reads.walks[0].safe, int64(1000*perStatement),
		"only numbers of the last second are read again")
}

func TestARefillEndsWithItsSpanAndGoesOn(t *testing.T) {
	o := newOne(t, 0, func(c *Config) { c.Unread = 1 })
	o.read(9, 1, 2, 3, 9)
	for range 2 {
		o.settled(o.one(), Acked, 0)
	}
	o.reads.walks[0].span = 4
	r := o.plan(Refill)
	require.Equal(t, []int64{0, 4}, []int64{r.From, r.Upto})
	o.answer(r, 9, row(3))
	o.settled(o.one(), Acked, 0)
	r = o.plan(Refill)
	require.Equal(t, int64(4), r.From)
	o.answer(r, 9, row(9))
	require.Equal(t, int64(9), o.one().Seq)
}

func TestAReadThatEndsAtARowOfASpilledKeyIsContinuedThere(t *testing.T) {
	o := newOne(t, 0)
	o.read(6, 1, 2, 3, 4, 5, 6)
	r := o.plan(Read)
	require.Equal(t, []string{"a"}, r.Keys)
	o.answer(r, 100, row(50)) // it has walked as many rows of the key as one read may
	r = o.Plan(Budget{Room: 10, Items: 10, Fetch: 10}, o.now)
	require.NotNil(t, r, "there are more")
	require.Equal(t, int64(50), r.Cursor)
}

func TestARefillThatEndsBeforeTheSpilledNumberOfAKeyLeavesIt(t *testing.T) {
	o := newOne(t, 0, func(c *Config) { c.Unread = 1 })
	rows := []Row{row(1), row(2), row(3), row(4), row(5), row(20)}
	for i := range rows[3:] {
		rows[3+i].Key = "b"
	}
	o.answer(o.plan(Read), 20, rows...)
	for range 2 {
		for _, d := range o.Deliver(10, o.now) {
			o.settled(d, Acked, 0)
		}
	}
	far := o.queues.slots[0].keys[keyName{"b", true}]
	require.Equal(t, int64(20), far.spill)
	o.reads.walks[0].span = 4
	o.answer(o.plan(Refill), 20, rows[2])
	require.Equal(t, int64(3), o.one().Seq)
	require.Equal(t, int64(20), far.spill)
}
