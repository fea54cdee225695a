package consume

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// wornTable simulates a live table that consumers wear out and vacuum, with the figures of a
// database.
type wornTable struct {
	live, dead, vacuums int64
	held                int64         // dead rows that a snapshot keeps
	perRow              time.Duration // of a vacuum
	hold                bool
	reads               int // of its figures
}

func (t *wornTable) wear() wear {
	t.reads++
	return wear{dead: t.dead, live: t.live, vacuums: t.vacuums}
}

func (t *wornTable) die(n int64) {
	t.dead += n
	if t.hold {
		t.held += n
	}
}

func (t *wornTable) vacuum() (took time.Duration) {
	t.vacuums++
	took = 100*time.Millisecond + time.Duration(t.dead)*t.perRow
	t.dead = t.held
	return took
}

// wearOut makes each consumer check a wornTable every second for a time, in turn, while
// perSecond rows die in it each second, taken by all consumers equally.
func wearOut(t *wornTable, consumers int, perSecond int64, d time.Duration) {
	paces := make([]vacuumPace, consumers)
	const every = time.Second
	taken := int64(0)
	step := every / time.Duration(consumers)
	for now := time.Duration(0); now < d; now += step {
		n := perSecond * int64(step) / int64(time.Second)
		t.die(n)
		taken += n
		p := &paces[int(now/step)%consumers]
		if p.due(now, taken/int64(consumers)) && p.worth(now, t.wear()) {
			took := t.vacuum()
			t.die(perSecond * int64(took) / int64(time.Second)) // meanwhile
			p.done(now+took, took, t.wear())
			now += took
		}
	}
}

func TestABusyTableIsVacuumedEachSecondOrTwoWhateverTheNumberOfConsumers(t *testing.T) {
	for _, consumers := range []int{1, 2, 48} {
		busy := &wornTable{live: 20_000}
		wearOut(busy, consumers, 30_000, 5*time.Minute)
		require.InDelta(t, 210, busy.vacuums, 80, "%d consumers", consumers)
		require.LessOrEqual(t, busy.dead, int64(3*30_000), "%d consumers", consumers)
	}
}

func TestAVacuumThatTakesLongDoesNotFallBehind(t *testing.T) {
	busy := &wornTable{live: 20_000, perRow: 4 * time.Microsecond} // as at full speed
	wearOut(busy, 1, 70_000, 5*time.Minute)
	require.LessOrEqual(t, busy.dead, int64(3*70_000))
}

func TestATableInWhichFewDieIsLeftToAutovacuum(t *testing.T) {
	quiet := &wornTable{live: 1000}
	wearOut(quiet, 3, 6, 50*time.Minute)
	require.Zero(t, quiet.vacuums)
	require.Less(t, quiet.reads, 3*51, "each consumer checks once a minute")
	quiet.live = 1_000_000
	quiet.dead = 200_000
	wearOut(quiet, 1, 1000, 10*time.Second)
	require.Zero(t, quiet.vacuums, "few dead rows compared with live ones")
}

func TestATableWithoutUsersIsNotLookedAt(t *testing.T) {
	idle := &wornTable{dead: 1_000_000}
	wearOut(idle, 2, 0, time.Hour)
	require.Zero(t, idle.reads)
}

// A snapshot keeps all rows that died after it. Vacuums without effect would read the
// wornTable again and again.
func TestAVacuumThatRemovedNothingIsRepeatedWhenTheDeadRowsHaveDoubled(t *testing.T) {
	for _, consumers := range []int{1, 48} {
		held := &wornTable{live: 20_000, hold: true}
		wearOut(held, consumers, 10_000, 2*time.Minute)
		require.GreaterOrEqual(t, held.vacuums, int64(4), "%d consumers", consumers)
		require.LessOrEqual(t, held.vacuums, int64(7), "%d consumers: 20, 40, 80 … thousand", consumers)
		held.hold, held.held = false, 0
		before := held.vacuums
		wearOut(held, consumers, 10_000, 2*time.Minute+10*time.Second)
		require.Greater(t, held.vacuums, before, "%d consumers: the snapshot ends", consumers)
		require.Less(t, held.dead, int64(100_000))
	}
}

func TestAVacuumTakesHalfOfTheTimeAtMost(t *testing.T) {
	p := vacuumPace{}
	require.False(t, p.worth(0, wear{dead: 100_000}), "the first check has no earlier figures")
	require.True(t, p.worth(0, wear{dead: 100_000}))
	p.done(10*time.Second, 10*time.Second, wear{dead: 10_000, vacuums: 1})
	require.False(t, p.worth(19*time.Second, wear{dead: 100_000, vacuums: 1}))
	require.True(t, p.worth(20*time.Second, wear{dead: 100_000, vacuums: 1}))
	p.failed(30*time.Second, 10*time.Second)
	require.False(t, p.worth(229*time.Second, wear{dead: 100_000, vacuums: 1}))
	require.True(t, p.worth(230*time.Second, wear{dead: 100_000, vacuums: 1}))
}

func TestAVacuumThatWasLeftOutIsTriedAgain(t *testing.T) {
	p := vacuumPace{last: &wear{}}
	require.True(t, p.worth(0, wear{dead: 50_000}))
	p.done(time.Millisecond, time.Millisecond, wear{dead: 50_000}) // autovacuum is running
	require.True(t, p.worth(3*time.Second, wear{dead: 60_000}))
}
