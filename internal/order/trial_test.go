package order

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Another session has locked the row of a suspect whose next trial is the last. Other keys continue.
func TestALockedSuspectDelaysItselfOnly(t *testing.T) {
	o := newOne(t, 0)
	last := suspect(1, "a", 2)
	c := row(2)
	c.Key = "c"
	o.answer(o.plan(Read), 2, last, c)
	locked := last
	locked.Lock = Locked
	got := 0
	for range 3000 { // five minutes
		o.now += 100 * time.Millisecond
		got += len(o.next())
		task := o.Plan(Budget{Room: 10, Items: 10, Fetch: 10}, o.now)
		switch {
		case task == nil:
		case task.Kind == Read:
			o.answer(task, 2)
		default:
			o.known(task, locked)
		}
	}
	require.Equal(t, 1, got, "the message of key c")
}

// Another consumer of the process handles a suspect for a long time.
func TestASuspectThatMustWaitForItsLastTrialStopsNoOtherKey(t *testing.T) {
	o := newOne(t, 0, func(c *Config) { c.Process = &process{} })
	c := row(2)
	c.Key = "c"
	o.answer(o.plan(Read), 2, suspect(1, "a", 2), c)
	require.Equal(t, []int64{2}, o.next())
}

// Otherwise no suspect of another queue is tried until this one is resumed.
func TestAPausedQueueTriesNoSuspect(t *testing.T) {
	for name, before := range map[string]func(o *one, s Row){
		"before its mark": func(*one, Row) {},
		"after its mark": func(o *one, s Row) {
			o.known(o.plan(Mark), Row{ID: s.ID, Seq: s.Seq, Fence: 10, Lapses: 2, Written: true})
		},
	} {
		p := &process{free: true}
		o := newOne(t, 0, func(c *Config) { c.Process = p })
		s := suspect(1, "a", 0)
		o.answer(o.plan(Read), 1, s)
		before(o, s)
		require.True(t, p.begun, name)
		o.first = false // the next task is a read
		o.Answer(o.Plan(Budget{Room: 10, Items: 10, Fetch: 10, Poll: true}, o.now), &Answer{}, o.now)
		if name == "after its mark" {
			o.known(o.plan(Release), Row{ID: s.ID, Seq: s.Seq, Fence: 11, Lapses: 2, Written: true})
		}
		require.False(t, p.begun, name)
		for range 5 { // a slow read follows after ten seconds
			o.now += time.Second
			require.Nil(t, o.Plan(Budget{Room: 10, Items: 10, Fetch: 10}, o.now))
			require.False(t, p.begun, name)
		}
		o.answer(o.plan(Read), 1)
		o.now += 2 * time.Second // it tries again
		o.plan(Mark)
		require.True(t, p.begun, name)
	}
}
