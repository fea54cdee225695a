package shards_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqshards"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/prove/testdb/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// count is the number of places of the queues in these tests.
const count = 3

// world has the places of a queue.
type world struct {
	*testing.T
	places []*testdb.World
	// schemas of the places, if one *sql.DB has all places: then all of them are the same world.
	schemas []string
}

// onEach runs a test over three databases in memory, of one engine and of two. In the long tier it
// also uses three files, three engines, and three schemas of one *sql.DB, on PostgreSQL and on
// Citus.
func onEach(t *testing.T, test func(*world)) {
	t.Parallel()
	for _, set := range []struct {
		name   string
		bubble bool
		make   func(*testing.T) *world
	}{
		{"in memory", true, func(t *testing.T) *world { return newWorld(t, testdb.Memory, testdb.Memory, testdb.Memory) }},
		{"engines in memory", true, func(t *testing.T) *world { return newWorld(t, testdb.Emulator, testdb.Memory, testdb.Emulator) }},
		{"files", true, func(t *testing.T) *world {
			return newWorld(t, testdb.SQLiteFile, testdb.SQLiteFile, testdb.SQLiteFile)
		}},
		{"engines", false, func(t *testing.T) *world { return newWorld(t, testdb.EmulatorSocket, testdb.SQLite, testdb.Postgres) }},
		{"schemas of one PostgreSQL", false, schemasOfPostgres},
		{"schemas of one Citus", false, schemasOfCitus},
	} {
		t.Run(set.name, func(t *testing.T) {
			t.Parallel()
			testdb.InBubble(t, set.bubble, func(t *testing.T) { test(set.make(t)) })
		})
	}
}

// onBubbles runs a test that would take too long on a real clock.
func onBubbles(t *testing.T, test func(*world)) {
	t.Parallel()
	for _, e := range []testdb.Engine{testdb.Memory, testdb.Emulator} {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			testdb.InBubble(t, true, func(t *testing.T) {
				w := newWorld(t, e, e, e)
				for _, place := range w.places {
					place.Within(10 * time.Minute)
				}
				test(w)
			})
		})
	}
}

// onSQLite runs a test with SQLite for all shards.
func onSQLite(t *testing.T, test func(*testing.T, testdb.Engine)) {
	t.Parallel()
	for _, e := range []testdb.Engine{testdb.Memory, testdb.SQLiteFile} {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			e.Require(t)
			testdb.InBubble(t, e.Bubble, func(t *testing.T) { test(t, e) })
		})
	}
}

// withServer runs a test with a server for one of the shards.
func withServer(t *testing.T, test func(t *testing.T, sqlite, server testdb.Engine)) {
	for _, e := range []testdb.Engine{testdb.Emulator, testdb.Postgres, testdb.EmulatorSocket} {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			e.Require(t)
			sqlite := testdb.SQLite
			if e.Bubble {
				sqlite = testdb.Memory
			}
			testdb.InBubble(t, e.Bubble, func(t *testing.T) { test(t, sqlite, e) })
		})
	}
}

func schemasOfPostgres(t *testing.T) *world {
	w := &world{T: t}
	testdb.Postgres.Require(t)
	place := testdb.New(t, testdb.Postgres)
	place.Open()
	for _, schema := range []string{"first", "second", "third"} {
		place.Exec("CREATE SCHEMA " + schema)
		w.places, w.schemas = append(w.places, place), append(w.schemas, schema)
	}
	return w
}

func schemasOfCitus(t *testing.T) *world {
	w := &world{T: t}
	testdb.Citus.Require(t)
	place := testdb.New(t, testdb.Citus)
	place.Open()
	for range count {
		schema, err := pgtest.Schema(pgtest.CitusSchema(t))
		require.NoError(t, err)
		w.places, w.schemas = append(w.places, place), append(w.schemas, schema)
	}
	return w
}

func newWorld(t *testing.T, engines ...testdb.Engine) *world {
	w := &world{T: t}
	for _, e := range engines {
		e.Require(t)
		place := testdb.New(t, e)
		place.Open()
		w.places = append(w.places, place)
	}
	return w
}

// Heal ends the faults of all places.
func (w *world) Heal() {
	for _, place := range w.places {
		place.Heal()
	}
}

func (w *world) soon() context.Context { return testdb.Soon(w) }

func (w *world) shards() []chanqshards.Shard {
	list := make([]chanqshards.Shard, len(w.places))
	for i, place := range w.places {
		list[i] = chanqshards.Shard{Name: fmt.Sprintf("place%d", i), DB: place.DB}
		if w.schemas != nil {
			list[i].Schema = w.schemas[i]
		}
	}
	return list
}

func (w *world) queue(cfg chanq.Config) *chanqshards.Queue[string] {
	w.Helper()
	require.NoError(w, chanqshards.Migrate(w.soon(), w.shards(), "orders", cfg))
	return w.open(cfg)
}

func (w *world) open(cfg chanq.Config) *chanqshards.Queue[string] {
	w.Helper()
	q, err := chanqshards.Open[string](w.soon(), w.shards(), "orders", cfg)
	require.NoError(w, err)
	return q
}

// shard returns one of the shards as a queue without shards.
func (w *world) shard(q *chanqshards.Queue[string], i int) *chanq.Queue[string] {
	w.Helper()
	shard, err := q.Shard(w.soon(), i)
	require.NoError(w, err)
	return shard
}

func (w *world) start(q *chanqshards.Queue[string], cfg chanq.ConsumerConfig) *chanqshards.Consumer[string] {
	w.Helper()
	c, err := q.Consume(context.Background(), cfg)
	require.NoError(w, err)
	testdb.End(w, c)
	return c
}

func (w *world) produce(q *chanqshards.Queue[string], cfg chanq.ProducerConfig) *chanqshards.Producer[string] {
	w.Helper()
	p, err := q.Producer(context.Background(), cfg)
	require.NoError(w, err)
	testdb.Close(w, p)
	return p
}

func (w *world) send(q *chanqshards.Queue[string], ms ...chanq.Message[string]) []chanq.ID {
	w.Helper()
	p := w.produce(q, chanq.ProducerConfig{})
	ids := testdb.SendBy(w, p, ms...)
	require.NoError(w, p.Close(w.soon()))
	return ids
}

// counted adds up the counts of all shards.
func (w *world) counted(q *chanqshards.Queue[string]) (sum chanqadmin.Stats) {
	w.Helper()
	for i := range q.Shards() {
		s := testdb.Counted(w, w.shard(q, i))
		sum.Ready += s.Ready
		sum.Scheduled += s.Scheduled
		sum.Leased += s.Leased
		sum.Dead += s.Dead
		sum.Done += s.Done
	}
	return sum
}

// find returns a message and the shard that has it.
func (w *world) find(q *chanqshards.Queue[string], id chanq.ID) (e chanqadmin.Entry, shard int) {
	w.Helper()
	for i := range q.Shards() {
		e, err := testdb.Admin(w.shard(q, i)).Get(w.soon(), id)
		if !errors.Is(err, chanq.ErrNotFound) {
			require.NoError(w, err)
			return e, i
		}
	}
	require.Fail(w, "no shard has it", "%v", id)
	return e, 0
}

// stored returns all messages of a state, of all shards.
func (w *world) stored(q *chanqshards.Queue[string], s chanqadmin.State) (all []chanqadmin.Entry) {
	w.Helper()
	for i := range q.Shards() {
		const most = 500
		page, err := testdb.Peek(w.soon(), w.shard(q, i), s, most)
		for all = append(all, page...); len(page) == most; all = append(all, page...) {
			require.NoError(w, err)
			page, err = testdb.PeekAfter(w.soon(), w.shard(q, i), page[most-1], most)
		}
		require.NoError(w, err)
	}
	return all
}

// gone makes a place unavailable until Heal: each operation fails with a broken connection.
func (w *world) gone(place int) { w.strike(place, w.places[place].Broken(false)) }

// silent makes a place stop responding until Heal.
func (w *world) silent(place int) { w.strike(place, faultdb.Hang()) }

// strike applies a fault to each operation of a place. If places share a *sql.DB, it applies to
// each operation that names the schema.
func (w *world) strike(place int, fault faultdb.Fault) {
	w.places[place].Faults.Inject(func(op faultdb.Op) faultdb.Fault {
		if w.schemas != nil && !strings.Contains(op.Text, `"`+w.schemas[place]+`".`) {
			return faultdb.Fault{}
		}
		return fault
	})
}

// bodies returns n messages without a key.
func bodies(prefix string, n int) []chanq.Message[string] {
	ms := make([]chanq.Message[string], n)
	for i := range ms {
		ms[i].Body = fmt.Sprintf("%s%03d", prefix, i)
	}
	return ms
}

// of returns n messages that belong to a shard by their DedupKey.
func of(q *chanqshards.Queue[string], shard, n int, prefix string) (ms []chanq.Message[string]) {
	for i := 0; len(ms) < n; i++ {
		m := chanq.Message[string]{Body: fmt.Sprintf("%s%03d", prefix, i)}
		if m.DedupKey = m.Body; q.ShardOf(m) == shard {
			ms = append(ms, m)
		}
	}
	return ms
}

// tally counts the handled messages.
type tally struct {
	mu   sync.Mutex
	seen map[string]int
}

func (y *tally) add(body string) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.seen == nil {
		y.seen = map[string]int{}
	}
	y.seen[body]++
}

func (y *tally) has(ms []chanq.Message[string]) bool {
	y.mu.Lock()
	defer y.mu.Unlock()
	return !slices.ContainsFunc(ms, func(m chanq.Message[string]) bool { return y.seen[m.Body] == 0 })
}

func (y *tally) count(ms []chanq.Message[string]) (n int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, m := range ms {
		n += min(1, y.seen[m.Body])
	}
	return n
}

// once requires that no message was handled twice.
func (y *tally) once(t require.TestingT) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for body, n := range y.seen {
		require.Equal(t, 1, n, body)
	}
}

// handle acks all messages until the test ends.
func (w *world) handle(q *chanqshards.Queue[string], cfg chanq.ConsumerConfig) (*chanqshards.Consumer[string], *tally) {
	c := w.start(q, cfg)
	y := &tally{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Handle(4, func(_ context.Context, l *chanq.Lease[string]) error {
			y.add(l.Body)
			return nil
		})
	}()
	w.Cleanup(func() { w.Heal(); c.Stop(); <-done })
	return c, y
}

// brief makes unanswered statements end early.
func (w *world) brief(cfg chanq.Config) chanq.Config {
	cfg.StatementTimeout = w.soonest(time.Second)
	return cfg
}

// soonest returns the deadline of a call for a place that does not respond: d on a bubble's clock, and on a real clock at least 5 s,
// because the other places must respond before it on a loaded machine.
func (w *world) soonest(d time.Duration) time.Duration {
	if w.places[0].Engine.Bubble {
		return d
	}
	return max(d, 5*time.Second)
}

// quick has short times, so that an outage ends soon.
var quick = chanq.ConsumerConfig{LeaseFor: 10 * time.Second, PollEvery: 50 * time.Millisecond}

var errShards = func(t require.TestingT, err error, words ...string) {
	require.ErrorIs(t, err, chanq.ErrShards)
	for _, word := range words {
		require.ErrorContains(t, err, word)
	}
}

func opError(t require.TestingT, err error) *chanq.OpError {
	var op *chanq.OpError
	require.True(t, errors.As(err, &op), "%v", err)
	return op
}
