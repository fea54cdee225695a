package batch_test

import (
	"context"
	"fmt"
	"math/bits"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/sqlbatch"
)

// These are not classes: the statement of the item times out, or it succeeds and leaves the item out, whose row is
// locked or cannot be seen by a look-up.
const (
	slow   = sqlbatch.Class(100)
	locked = sqlbatch.Class(101)
	unseen = sqlbatch.Class(102)
)

// cell is a case of the matrix: a batch of size items, of which the one at place fails.
type cell struct {
	class  sqlbatch.Class
	size   int
	place  int
	inTurn bool
	two    bool   // there are two workers, each of which leaves new items to the other one for a moment
	outage string // when the database is down: "", "first", or "between" the isolation of the bad item and its recovery
	// Which callers give up: "", "bad", "healthy", "all", or "later", which is the bad one's after its isolation
	quits string
}

func (c cell) String() string {
	name := map[sqlbatch.Class]string{slow: "out of time", locked: "locked", unseen: "unseen"}[c.class]
	if name == "" {
		name = c.class.String()
	}
	return fmt.Sprintf("%s/size=%d/place=%d/inTurn=%t/two=%t/outage=%s/quits=%s", name, c.size, c.place, c.inTurn,
		c.two, c.outage, c.quits)
}

// rejected reports that the database rejects the item because of its contents.
func (c cell) rejected() bool {
	return slices.Contains([]sqlbatch.Class{sqlbatch.Duplicate, sqlbatch.BadRow, sqlbatch.NoSchema, sqlbatch.Permanent},
		c.class)
}

// fail simulates a statement with the bad item.
func (c cell) fail(ctx context.Context) error {
	switch c.class {
	case slow:
		<-ctx.Done()
		return context.Cause(ctx)
	case locked, unseen:
		return nil
	}
	return classed(c.class)
}

// away simulates each statement during an outage.
func (c cell) away(context.Context, []*item) error {
	if c.class == sqlbatch.Unknown || c.class == sqlbatch.RolledBack {
		return classed(c.class)
	}
	return classed(sqlbatch.Refused)
}

// healthyWithin is the time within which the healthy items are written, from the end of the outage on.
func (c cell) healthyWithin() time.Duration {
	within := 3 * time.Second
	if c.class == slow {
		// The first statement, those of lateParts parts of the batch, with an eighth of the time, and two that find
		// the bad item.
		within += timeout + 9*timeout/8
	}
	if c.outage == "first" {
		within += 5 * time.Second // the pause in which the outage ended
	}
	return within
}

// firstWithin is the maximum time that a new item waits while the bad one is alone in its batch, so that there is
// nothing to compare it with.
func (c cell) firstWithin() time.Duration {
	switch {
	case c.class == slow:
		return timeout + timeout/8 + 2*time.Second
	case c.outage != "":
		return 5 * time.Second
	}
	return time.Second
}

// statementsWithin bounds the number of statements until then, without those of an outage.
func (c cell) statementsWithin() int { return 8 + 4*bits.Len(uint(c.size)) }

func TestOneBadItem(t *testing.T) {
	var cells []cell
	sizes := []int{1, 2, 7, 100}
	if testing.Short() {
		sizes[3] = 20
	}
	for _, class := range []sqlbatch.Class{sqlbatch.Unknown, sqlbatch.RolledBack, sqlbatch.Refused, sqlbatch.Duplicate,
		sqlbatch.BadRow, sqlbatch.NoSchema, sqlbatch.Permanent, slow, locked, unseen} {
		for _, size := range sizes {
			for _, place := range slices.Compact([]int{0, size / 2, size - 1}) {
				for _, inTurn := range []bool{false, true} {
					if inTurn && (class == locked || class == unseen) {
						continue // no Absent is configured
					}
					for _, outage := range []string{"", "first", "between"} {
						for _, quits := range []string{"", "bad", "healthy", "all", "later"} {
							if size == sizes[3] && outage != "" && quits != "" {
								continue // they take long, and smaller batches are sufficient
							}
							cells = append(cells, cell{class, size, place, inTurn, false, outage, quits})
							if !inTurn {
								cells = append(cells, cell{class, size, place, false, true, outage, quits})
							}
						}
					}
				}
			}
		}
	}
	for _, c := range slices.Clone(cells) { // one size more for some
		if !testing.Short() && c.size == 100 && c.place == 50 && c.outage == "" && c.quits == "" {
			c.size, c.place = 1000, c.place*10
			cells = append(cells, c)
		}
	}
	for _, c := range cells {
		t.Run(c.String(), func(t *testing.T) {
			synctest.Test(t, c.run)
		})
	}
}

func (c cell) run(t *testing.T) {
	cfg := settings()
	cfg.Full, cfg.InTurn, cfg.Workers = []int{c.size}, c.inTurn, 1
	if c.two {
		cfg.Workers, cfg.Moment = 2, 250*time.Millisecond
	}
	w := newWorld(t, cfg)
	bad := c.place
	broken := func(ctx context.Context, items []*item) error {
		if slices.ContainsFunc(items, func(it *item) bool { return it.n == bad }) {
			return c.fail(ctx)
		}
		return nil
	}
	w.set(broken)
	if c.outage == "first" {
		w.set(c.away)
	}
	if c.class == locked || c.class == unseen {
		w.lock[bad] = true
	}
	if c.class == unseen {
		w.hide[bad] = true
	}
	items := numbered(0, c.size-1)
	w.addAll(batch.Now, items...)
	const outage = 100 * time.Second
	if c.outage == "first" {
		w.wait(outage)
		require.LessOrEqual(t, len(w.ran()), 200, "statements of an outage")
		require.Empty(t, w.told)
		if c.size > 1 {
			require.Zero(t, w.w.Stats().Isolated, "an outage isolates nothing if there is something to compare")
		}
		w.set(broken)
		w.reset()
	}

	gone := map[int]bool{} // taken back
	switch c.quits {
	case "bad":
		if w.w.Withdraw(items[bad]) {
			gone[bad] = true
		}
	case "healthy", "all":
		for _, it := range items {
			if (c.quits == "all" || it.n != bad && it.n%3 == 0) && w.w.Withdraw(it) {
				gone[it.n] = true
			}
		}
	}
	began := time.Now()
	healthy := func() bool {
		return !slices.ContainsFunc(items, func(it *item) bool {
			return it.n != bad && !gone[it.n] &&
				!w.hasOutcome(it.n)
		})
	}
	for !healthy() && time.Since(began) < 2*c.healthyWithin() {
		w.wait(10 * time.Millisecond)
	}
	require.True(t, healthy())
	require.LessOrEqual(t, time.Since(began), c.healthyWithin())
	require.LessOrEqual(t, len(w.together(bad)), c.statementsWithin())

	// A new item is written immediately, whatever the outcome of the bad one, and the batch has its full size again
	// after a few.
	next := c.size
	fresh := func(n int) {
		before := len(w.together(bad))
		w.addAll(batch.Now, numbered(next, next+n-1)...)
		next += n
		for range 4 * bits.Len(uint(n)) {
			w.wait(time.Second) // if the bad item is still being compared with others
		}
		for i := next - n; i < next; i++ {
			if err := w.outcome(i).Err; err != nil {
				require.NoError(t, err, i)
			}
		}
		require.LessOrEqual(t, len(w.together(bad))-before, c.statementsWithin())
	}
	w.addAll(batch.Now, numbered(next, next)...)
	next++
	w.wait(c.firstWithin())
	fresh(1)
	if c.outage == "between" {
		isolated := w.w.Stats().Isolated
		w.set(c.away)
		w.addAll(batch.Now, numbered(next, next+c.size)...)
		w.wait(outage)
		if c.two { // an item that is the only one of its worker has nothing to be compared with
			isolated = max(isolated, w.w.Stats().Isolated)
			require.LessOrEqual(t, isolated, 1)
		}
		require.Equal(t, isolated, w.w.Stats().Isolated, "an outage isolates nothing if there is something to compare")
		w.set(broken)
		w.wait(5 * time.Second) // the pause in which the outage ended
		for range c.size + 1 {
			require.NoError(t, w.outcome(next).Err)
			next++
		}
	}
	for range 3 {
		fresh(5 * c.size)
	}
	sizes := w.together(bad)
	require.Contains(t, sizes[max(0, len(sizes)-8):], c.size, "the normal size is back")

	if c.quits == "later" && !w.hasOutcome(bad) {
		if w.w.Withdraw(items[bad]) {
			gone[bad] = true
		}
		w.wait(3 * timeout) // for the statement that has it
	}
	switch {
	case gone[bad]:
	case c.quits == "bad", c.quits == "all", c.quits == "later":
		require.Error(t, w.outcome(bad).Err)
	case c.rejected():
		require.Equal(t, classed(c.class), w.outcome(bad).Err)
	default:
		require.False(t, w.hasOutcome(bad))
		stats := w.w.Stats()
		require.Equal(t, 1, stats.Open)
		require.Equal(t, 1, stats.Waiting)
		if c.class != locked {
			require.Equal(t, 1, stats.Isolated)
		} else if c.outage == "" {
			require.Zero(t, stats.Isolated, "it is deferred")
		}
		if c.place%2 == 0 { // the item recovers
			w.heal()
			for range 3 {
				w.wait(2 * time.Minute)
			}
			require.NoError(t, w.outcome(bad).Err)
			if c.class != locked || len(w.isolated) > 0 {
				require.Equal(t, []int{1, 0}, w.isolated)
			}
		} else {
			w.w.Close()
			w.wait(time.Hour)
			require.Equal(t, 1, w.w.Stats().Open, "Close waits for it")
			w.w.GiveUp(errGivenUp)
			require.ErrorIs(t, w.outcome(bad).Err, errGivenUp)
		}
	}
	w.close()

	// Each item has one outcome, or none if it was taken back. The reported outcome is true.
	for n := range next {
		if gone[n] {
			require.Empty(t, w.told[n])
			require.Zero(t, w.stored[n])
		} else if o := w.outcome(n); o.Err == nil && w.stored[n] != 1 {
			require.Equal(t, 1, w.stored[n], n)
		} else if o.Err != nil {
			require.Equal(t, w.unknown[n], o.Unknown, "unknown belongs to the statements of the item")
		}
	}
	if c.inTurn {
		order := slices.DeleteFunc(slices.Clone(w.order), func(n int) bool { return n == bad })
		early := 0
		for i := 1; i < len(order); i++ {
			if order[i] < order[i-1] {
				early++
			}
		}
		// If the first item fails even after an outage, the item that succeeds in its place need not be the second.
		if c.outage != "" && bad == 0 {
			early--
		}
		require.LessOrEqual(t, early, 0, order)
	}
}
