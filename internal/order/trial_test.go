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
