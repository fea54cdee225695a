package order

import (
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// calmStep does all that is due. From the first call on nothing fails, except that a poison message ends its process.
func (s *sim) calmStep(i int) {
	s.now += 200 * time.Millisecond // a message that has lost leases waits for up to a minute
	for _, r := range s.rows {
		switch {
		case !r.released:
			if r.seq == 0 {
				s.drawn++
				r.seq = s.drawn
			}
			r.visible, r.released = true, true
		case r.locked:
			r.locked = false
		case r.dead && r.poison:
			r.dead, r.gone = false, true
		case r.dead && i%5 == 0:
			s.redrive(r)
		}
	}
	for _, st := range s.late {
		if !st.applied {
			s.apply(st)
		}
	}
	for _, op := range s.ops {
		if !op.applied {
			s.applySettle(op)
		}
		if !op.abandoned {
			s.hear(op, false)
		}
	}
	s.late, s.ops = nil, nil
	for _, c := range s.consumers {
		if c.consumer == 0 {
			s.join(c)
		}
		s.giveSlots(c)
		s.take(c)
		for range 4 {
			if c.task == nil {
				if t := c.seq.Plan(Budget{Room: 10, Items: 10, Fetch: 10, Poll: true}, s.now); t != nil {
					c.task = s.begin(c, t)
				}
			}
			for c.task != nil {
				s.progress(c)
			}
		}
		for range simRows {
			s.deliver(c)
		}
		for len(c.out) > 0 {
			s.settle(c, c.out[0], "ack")
		}
	}
}

// walkModel makes a random walk, and returns the fault that it found.
func walkModel(choose func(int) int, f fault) (found violation, log []string) {
	s := &sim{choose: choose, fault: f, now: time.Second, alive: map[int]bool{}}
	s.holds, s.oneWriter, s.looksAtLocks, s.maxKeys = s.chance(2), s.chance(4), s.chance(2), s.pick(2)
	s.blocks = s.oneWriter && s.chance(2)
	defer func() {
		if v := recover(); v != nil {
			is, ok := v.(violation)
			if !ok {
				panic(v)
			}
			found, log = is, s.log
		}
	}()
	for i := range 1 + s.pick(2) {
		c := &simConsumer{n: i + 1}
		c.start(s)
		s.consumers = append(s.consumers, c)
	}
	for range 50 + s.pick(500) {
		s.step()
	}
	s.calm = true
	s.say("calm")
	for i := 0; slices.ContainsFunc(s.rows, func(r *simRow) bool { return !r.gone }); i++ {
		if i == 3000 {
			for _, r := range s.rows {
				if !r.gone {
					s.say("left: %+v", *r)
				}
			}
			for _, c := range s.consumers {
				s.say("c%d: %+v", c.n, c.seq.Counts())
				for _, sl := range c.seq.queues.slots {
					s.say("slot %d: %d at work", sl.Number, sl.atWork)
					for _, k := range sl.keys {
						for _, m := range k.all {
							s.say("number %d: state %d, waits for a catch-up %v, held %v", m.Seq, m.state,
								m.gate > sl.walk.done, k.held)
						}
					}
				}
			}
			s.fail("not all messages have ended")
		}
		s.calmStep(i)
	}
	for _, c := range s.consumers {
		s.end(c)
	}
	return "", nil
}

// end checks that memory is empty when all messages have ended.
func (s *sim) end(c *simConsumer) {
	c.seq.lose(s.now)
	q := c.seq
	counts := q.mem.keys + q.mem.contents + q.mem.bytes + len(q.mem.spilled) + len(q.queues.held.keys)
	for _, n := range q.mem.counts[waiting:over] {
		counts += n
	}
	if counts != 0 {
		s.fail("c%d: the counts of an empty sequencer are not 0: %+v, by state %v", c.n, q.Counts(), q.mem.counts)
	}
}

// checks returns the number of random walks of this run: see the variable's tiers.
func checks(short int) int {
	if os.Getenv("CHANQ_TEST") == "soak" {
		return 500 * short
	}
	if testing.Short() {
		return short / 4
	}
	return short
}

func TestTheSequencerKeepsTheOrderOfKeysWhateverFails(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		found, log := walkModel(func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "") }, none)
		for _, line := range log {
			t.Log(line)
		}
		if found != "" {
			t.Fatal(found)
		}
	})
}

func TestRandomWalksFindNothing(t *testing.T) {
	for seed := range uint64(checks(2000)) {
		r := rand.New(rand.NewPCG(seed, 1))
		found, log := walkModel(r.IntN, none)
		if found != "" {
			for _, line := range log {
				t.Log(line)
			}
			require.Empty(t, found, "seed %d", seed)
		}
	}
}

// A model that finds no fault proves nothing.
func TestRandomWalksFindEachFault(t *testing.T) {
	list, walks := faults, uint64(5_000)
	if os.Getenv("CHANQ_TEST") == "soak" {
		list, walks = append(list, rareFaults...), 200_000
	}
	for _, f := range list {
		t.Run(string(f), func(t *testing.T) {
			for seed := range walks {
				r := rand.New(rand.NewPCG(seed, 1))
				if found, _ := walkModel(r.IntN, f); found != "" {
					t.Logf("walk %d: %s", seed, found)
					return
				}
			}
			t.Error("not found")
		})
	}
}

func TestAReadThatEndsAtANumberIsContinuedThere(t *testing.T) {
	o := newOne(t, 0)
	r := o.plan(Read)
	// 3 might be missing
	o.Answer(r, &Answer{Walked: true, Drawn: 4, Upto: 2, Rows: []Row{row(1), row(2), row(4)}}, o.now)
	require.False(t, o.Rests(o.now))
	d := o.one()
	r = o.plan(Read)
	require.Equal(t, int64(2), r.Cursor)
	o.Answer(r, &Answer{Walked: true, Drawn: 4, Upto: None, Rows: []Row{row(3), row(4)}}, o.now)
	for _, seq := range []int64{2, 3, 4} {
		o.settled(d, Acked, 0)
		d = o.one()
		require.Equal(t, seq, d.Seq)
	}
}

func TestASampleFromBeforeTheRowsCountsForTheSameRead(t *testing.T) {
	for _, first := range []bool{true, false} {
		o := newOne(t, 0, func(c *Config) { c.WatermarkFirst = first })
		o.read(2, 1, 2)
		from := int64(0)
		if first {
			from = 2
		}
		require.Equal(t, from, o.plan(Read).From)
	}
}

func TestALockedRowOfAReadClosesItsKeyUntilItIsFetched(t *testing.T) {
	for _, committed := range []bool{true, false} {
		o := newOne(t, 0, func(c *Config) { c.Holds = false })
		locked := row(1)
		locked.Lock = Locked
		o.answer(o.plan(Read), 2, locked, row(2))
		require.Empty(t, o.next())
		require.False(t, o.Rests(o.now))
		o.now += firstPause
		f := o.plan(Fetch)
		if committed {
			o.known(f, row(1))
			require.Equal(t, []int64{1}, o.next())
		} else {
			o.known(f)
			require.Equal(t, []int64{2}, o.next())
		}
	}
}

func TestReadsThatBringNoDeliverableMessageAskForMore(t *testing.T) {
	o := newOne(t, 0)
	seq := int64(0)
	read := func(room int, key string) (rows int) {
		t.Helper()
		o.now += 100 * time.Millisecond
		r := o.Plan(Budget{Room: room, Items: 10, Fetch: 10, Poll: true}, o.now)
		require.Equal(t, Read, r.Kind)
		require.Equal(t, r.Rows > room, r.Old == None, "more rows than there is room for come without contents")
		var list []Row
		for range r.Rows {
			seq++
			list = append(list, row(seq))
			list[len(list)-1].Key = key
		}
		o.answer(r, seq, list...)
		return r.Rows
	}
	require.Equal(t, 2, read(2, "z"))
	require.Len(t, o.next(), 1)
	require.Equal(t, 2, read(2, "z"))
	require.Equal(t, 2, read(2, "z"), "a single key")
	require.Equal(t, 2, read(2, "a"))
	require.Len(t, o.next(), 1)
	for _, rows := range []int{2, 4, 8, 16, 32, 64, 100, 100} {
		require.Equal(t, rows, read(2, "a"))
	}
	require.Equal(t, 100, read(2, "b"))
	require.Equal(t, 2, read(2, "b"))
	require.Equal(t, 4, read(2, "b"))
	require.Equal(t, 10, read(10, "b"))
}
