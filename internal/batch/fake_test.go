package batch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq/internal/batch"
	"github.com/chanq/chanq/sqlbatch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type item struct {
	batch.Place
	n   int
	key string
}

// classed is an error of a given class.
type classed sqlbatch.Class

func (c classed) Error() string { return sqlbatch.Class(c).String() }

func classify(err error) sqlbatch.Class {
	var c classed
	if errors.As(err, &c) {
		return sqlbatch.Class(c)
	}
	return sqlbatch.Unknown
}

// statement is a statement that a Writer has run.
type statement struct {
	items []int
	skip  bool
	began time.Duration // since the world began
	err   error
}

// world is a Writer and a database that fails as the test requires. It is the Writer's Health.
type world struct {
	t       *testing.T
	w       *batch.Writer[*item]
	began   time.Time
	latency time.Duration // of statements that succeed; others fail immediately
	ended   chan struct{} // Run has returned

	mu         sync.Mutex
	fail       func(ctx context.Context, items []*item) error // nil: none fails. Without mu
	lock       map[int]bool                                   // items whose rows are locked
	hide       map[int]bool                                   // items that Absent fails to look for
	gate       chan struct{}                                  // each statement takes one token; nil: there is no gate
	statements []*statement
	stored     map[int]int // how often an item was written
	order      []int       // in which items were written
	unknown    map[int]bool
	told       map[int][]batch.Outcome[*item]
	groups     [][]int // of Done
	isolated   []int   // of Isolated
	ups, downs int
}

const timeout = 30 * time.Second

// settings are the settings of the tests: 100 items are a batch.
func settings() batch.Config[*item] {
	return batch.Config[*item]{Full: []int{100}, Linger: linger, Workers: 1, Key: func(i *item) string { return i.key },
		Loop: batch.Loop{Timeout: timeout}}
}

const linger = 5 * time.Millisecond

// newWorld starts a Writer, which is given up at the end of the test.
func newWorld(t *testing.T, cfg batch.Config[*item]) *world {
	w := &world{t: t, began: time.Now(), ended: make(chan struct{}),
		lock: map[int]bool{}, hide: map[int]bool{}, stored: map[int]int{}, unknown: map[int]bool{},
		told: map[int][]batch.Outcome[*item]{}}
	cfg.Loop.Health, cfg.Loop.Classify = w, classify
	cfg.Done = w.done
	if cfg.Write == nil {
		cfg.Write = w.write
	}
	if !cfg.InTurn {
		cfg.Absent = w.absent
	}
	cfg.Isolated = func(n int, _ error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.isolated = append(w.isolated, n)
	}
	w.w = batch.New(cfg)
	go func() {
		defer close(w.ended)
		w.w.Run(context.Background())
	}()
	t.Cleanup(func() { // also if the test has failed
		w.mu.Lock()
		if w.gate != nil {
			close(w.gate)
			w.gate = nil
		}
		w.mu.Unlock()
		w.w.GiveUp(errGivenUp)
		<-w.ended
	})
	synctest.Wait()
	return w
}

var errGivenUp = errors.New("given up")

// reported returns how often the Writer has reported that the database is down, and that it answers.
func (w *world) reported() (downs, ups int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.downs, w.ups
}

func (w *world) Worked(time.Time)        { w.mu.Lock(); w.ups++; w.mu.Unlock() }
func (w *world) Failed(time.Time, error) { w.mu.Lock(); w.downs++; w.mu.Unlock() }

func (w *world) write(ctx context.Context, items []*item, skip bool) (written []*item, err error) {
	numbers := make([]int, len(items))
	for i, it := range items {
		numbers[i] = it.n
		if it.Kind != items[0].Kind {
			panic("a statement mixes kinds")
		}
	}
	w.mu.Lock()
	this := &statement{items: numbers, skip: skip, began: time.Since(w.began)}
	w.statements = append(w.statements, this)
	fail, gate := w.fail, w.gate
	w.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	if fail != nil && err == nil {
		err = fail(ctx, items)
	}
	if err == nil && w.latency > 0 {
		time.Sleep(w.latency)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	this.err = err
	if err != nil {
		for _, it := range items {
			w.unknown[it.n] = w.unknown[it.n] || classify(err) == sqlbatch.Unknown
		}
		return nil, err
	}
	for _, it := range items {
		if !w.lock[it.n] {
			w.stored[it.n]++
			w.order = append(w.order, it.n)
			written = append(written, it)
		}
	}
	return written, nil
}

// absent returns no outcome: items that Write has left out are locked.
func (w *world) absent(_ context.Context, items []*item) ([]batch.Outcome[*item], error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.ContainsFunc(items, func(it *item) bool { return w.hide[it.n] }) {
		return nil, classed(sqlbatch.Refused)
	}
	for _, it := range items {
		if !w.lock[it.n] {
			return []batch.Outcome[*item]{{Item: it, Err: fmt.Errorf("item %d was not locked", it.n)}}, nil
		}
	}
	return nil, nil
}

func (w *world) done(_ time.Time, out []batch.Outcome[*item]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var group []int
	for _, o := range out {
		group = append(group, o.Item.n)
		w.told[o.Item.n] = append(w.told[o.Item.n], o)
	}
	w.groups = append(w.groups, group)
}

// numbered makes items with these numbers, of 10 bytes each.
func numbered(from, to int) []*item {
	var items []*item
	for n := from; n <= to; n++ {
		items = append(items, &item{Place: batch.Place{Size: 10}, n: n})
	}
	return items
}

// add adds items one by one. addAll adds them together.
func (w *world) add(u batch.Urgency, items ...*item) {
	w.t.Helper()
	for _, it := range items {
		require.NoError(w.t, w.w.Add(w.t.Context(), it, u))
	}
	synctest.Wait()
}

func (w *world) addAll(u batch.Urgency, items ...*item) {
	w.t.Helper()
	require.NoError(w.t, w.w.AddAll(len(items), func(i int) *item { return items[i] }, u))
	synctest.Wait()
}

func (w *world) wait(d time.Duration) {
	time.Sleep(d) // of the bubble's clock
	synctest.Wait()
}

// set changes what fails.
func (w *world) set(fail func(ctx context.Context, items []*item) error) {
	w.mu.Lock()
	w.fail = fail
	w.mu.Unlock()
}

// heal ends all failures.
func (w *world) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail = nil
	clear(w.lock)
	clear(w.hide)
}

// keep makes each statement wait for finish.
func (w *world) keep() { w.gate = make(chan struct{}) }

// finish ends one of the running statements.
func (w *world) finish() {
	w.gate <- struct{}{}
	synctest.Wait()
}

// together returns the sizes of the statements so far, without those of this item alone.
func (w *world) together(but int) (sizes []int) {
	for _, items := range w.ran() {
		if !slices.Equal(items, []int{but}) {
			sizes = append(sizes, len(items))
		}
	}
	return sizes
}

// ran returns the items of the statements so far.
func (w *world) ran() (all [][]int) {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.statements {
		all = append(all, s.items)
	}
	return all
}

func (w *world) reset() {
	w.mu.Lock()
	w.statements = nil
	w.mu.Unlock()
}

// outcome returns the outcome of an item, which must have one.
func (w *world) outcome(n int) batch.Outcome[*item] {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if told := w.told[n]; len(told) != 1 {
		require.FailNow(w.t, "not one outcome", "%d has %d", n, len(told))
	}
	return w.told[n][0]
}

func (w *world) hasOutcome(n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.told[n]) > 0
}

// close closes the Writer and waits for its end.
func (w *world) close() {
	w.t.Helper()
	w.w.Close()
	<-w.ended
	stats := w.w.Stats()
	require.Zero(w.t, stats.Open+stats.Waiting+stats.Isolated+stats.Behind)
	require.ErrorIs(w.t, w.w.Add(w.t.Context(), &item{}, batch.Lazy), batch.ErrClosed)
	require.ErrorIs(w.t, w.w.AddAll(1, func(int) *item { return &item{} }, batch.Lazy), batch.ErrClosed)
	for n, told := range w.told {
		require.Len(w.t, told, 1, "outcomes of %d", n)
	}
}

// failing returns a failure of the statements that have one of these items.
func failing(err error, numbers ...int) func(context.Context, []*item) error {
	return func(_ context.Context, items []*item) error {
		if slices.ContainsFunc(items, func(it *item) bool { return slices.Contains(numbers, it.n) }) {
			return err
		}
		return nil
	}
}
