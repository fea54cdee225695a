package order

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// parts returns a memory with messages of one slot, each with its own key.
func parts(keys, messages int) (y *memory, list []*Message) {
	y = &memory{cfg: &Config{Unread: 4, Blocked: 100}}
	sl := &slot{Slot: Slot{Keys: keys}, mem: y, walk: &walk{mem: y, from: None}, keys: map[keyName]*keyQueue{}}
	for i := range messages {
		k := &keyQueue{slot: sl, name: keyName{string(rune('a' + i)), true}, spill: None}
		m := &Message{Seq: int64(i + 1), key: k}
		k.all, sl.keys[k.name] = []*Message{m}, k
		list = append(list, m)
	}
	return y, list
}

func TestAPlaceThatIsFreePassesToTheNextMessage(t *testing.T) {
	y, list := parts(1, 3)
	a, b, c, sl := list[0], list[1], list[2], list[0].key.slot
	require.True(t, sl.enter(a))
	require.True(t, sl.enter(a), "it already has a place")
	require.False(t, sl.enter(b))
	require.False(t, sl.enter(c))
	y.set(b, idle) // it was recalled
	y.changed = nil
	sl.leave(a)
	require.Equal(t, []*keyQueue{c.key}, y.changed)
	require.Equal(t, idle, c.state)
	require.False(t, sl.enter(a), "c has the place")
	require.True(t, sl.enter(c))
	sl.Keys = 0
	sl.fill()
	require.True(t, a.counted)
	require.Equal(t, 2, sl.atWork)
}

// sized are contents of so many bytes.
type sized int

func (s sized) Bytes() int { return int(s) }

func TestCountsFollowTheStatesOfMessages(t *testing.T) {
	y, list := parts(0, 2)
	m, taken := list[0], []*Message{}
	take := func(o *Message) {
		y.set(o, out)
		taken = append(taken, o)
	}
	y.setContents(m, sized(8))
	y.list(m, ready)
	require.Equal(t, []int{1, 0, 1, 8}, []int{y.counts[ready], m.key.busy(), y.contents, y.bytes})
	y.take(ready, 1, func(o *Message) bool { return o != m }, take)
	require.Empty(t, taken)
	y.take(ready, 1, nil, take)
	require.Equal(t, []*Message{m}, taken)
	require.Equal(t, []int{0, 1, 1}, []int{y.counts[ready], m.key.busy(), m.key.slot.busy()})
	require.Empty(t, y.changed)
	y.set(m, idle)
	require.Equal(t, []*keyQueue{m.key}, y.changed, "its key might move on")
	require.Zero(t, m.key.busy()+m.key.slot.busy())
}

func TestAPauseEndsOnceAndGetsLonger(t *testing.T) {
	y, list := parts(0, 1)
	m, now := list[0], time.Second
	for i := range 3 {
		y.pause(m, waiting, now)
		require.False(t, y.rests(now), "it is due, but waits for another reason")
		at := now + firstPause<<i
		require.Equal(t, at, y.due(true, now))
		y.wake(at - 1)
		require.Equal(t, waiting, m.state)
		y.wake(at)
		require.Equal(t, idle, m.state)
	}
	y.pause(m, inTx, now)
	y.set(m, idle)
	y.pause(m, toUndo, now)
	y.wake(now + time.Hour)
	require.Equal(t, []*Message{m}, y.lists[toUndo], "the earlier pause has no effect")
	require.Equal(t, now, y.due(false, now))
	m.dueAt = now + 3*time.Hour
	y.wait(m, waiting, now+2*time.Hour)
	require.True(t, y.rests(now))
	y.wake(now + 2*time.Hour)
	require.Equal(t, toLook, m.state, "another program might have ended it")
}

func TestAKeyThatIsNotHeldAnyMoreOpensAfterThePendingCatchUps(t *testing.T) {
	y, list := parts(0, 1)
	k := list[0].key
	y.cfg.Holds = true
	h := held{mem: y, keys: map[*keyQueue]bool{}}
	h.add(k, 3)
	ask := func(at time.Duration, still bool) []*keyQueue {
		q := h.plan(10, at)
		require.Equal(t, []string{"a"}, q.Keys)
		require.Nil(t, h.plan(10, at), "one check per second")
		return h.opens(q, &Answer{Redriven: 3, Held: []bool{still}})
	}
	require.Empty(t, ask(0, true))
	require.Equal(t, []*keyQueue{k}, ask(time.Second, false))
	y.events++
	y.changed = nil
	h.open(k)
	require.Equal(t, []*keyQueue{k}, y.changed)
	require.Empty(t, h.keys)
	require.True(t, k.closed(list[0]))
	k.slot.walk.done = y.events
	require.False(t, k.closed(list[0]))
	y.cfg.Holds = false
	h.add(k, 4)
	require.False(t, k.held)
}

func TestAWalkThatMeetsAnotherHasNotCaughtUpWithWhatEitherLacks(t *testing.T) {
	y, _ := parts(0, 0)
	r := reads{mem: y}
	r.add([]*slot{{Slot: Slot{Number: 2}, mem: y}}, 0)
	r.catchUp(5)
	r.walks[0].begin(0)
	r.add([]*slot{{Slot: Slot{Number: 1}, mem: y}}, 0)
	for _, w := range r.walks {
		w.cursor, w.safe = 9, 9
	}
	require.False(t, r.walks[1].pending(), "it has not read before the event")
	r.meet()
	require.Len(t, r.walks, 1)
	w := r.walks[0]
	require.Equal(t, []int{1, 2}, []int{w.slots[0].Number, w.slots[1].Number})
	require.Equal(t, int64(5), w.from)
	require.Less(t, w.done, y.events)
	r.split(w)
	require.Len(t, r.walks, 2)
	for _, w := range r.walks {
		require.Len(t, w.slots, 1)
		require.Same(t, w, w.slots[0].walk)
		require.True(t, w.pending())
		w.begin(0)
		w.caughtUp(time.Second)
		require.Equal(t, y.events, w.done)
		require.False(t, w.pending())
		require.Equal(t, 2*time.Second, w.catchAt)
	}
}
