package sqlserver_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/mssqltest"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/sqlkind"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// cost returns the cost of statements whose text contains part since the last ResetQueryStats.
func cost(q *queue, part string) (sum mssqltest.Cost) {
	for _, p := range q.QueryStats() {
		if strings.Contains(p.Text, part) {
			sum.Requests += p.Requests
			sum.KeysRead += p.KeysRead
			sum.KeysWritten += p.KeysWritten
			sum.Locks += p.Locks
		}
	}
	return sum
}

// store adds n messages, 500 of which are due at one time, a second later each.
func (q *queue) store(n int, delay time.Duration) {
	q.t.Helper()
	for ; n > 0; n -= 500 {
		rows := makeRows(min(n, 500), 0)
		for i := range rows {
			rows[i].Delay = delay
		}
		q.exec(q.Enqueue(rows))
		q.Clock().Advance(time.Second)
	}
}

// reader claims as a consumer does: each claim begins at the latest due time that the previous claim returned.
type reader struct {
	*queue
	heads sqlbatch.Heads
}

func (r *reader) claim(n int, lease time.Duration) []sqlbatch.Item {
	r.t.Helper()
	rows := r.rows(r.Claim(sqlbatch.ClaimParams{Rows: n, Lease: lease, Inline: sqlbatch.MaxBody, Heads: r.heads}))
	require.Len(r.t, rows, n)
	for _, row := range rows {
		at, head := row[1].(int64)-sqlbatch.PriorityLow, sqlbatch.Head{Due: row[7].(int64), ID: suite.IDOf(row[0])}
		if head.Compare(r.heads[at]) > 0 {
			r.heads[at] = head
		}
	}
	return itemsOf(rows)
}

// claimAll claims n messages.
func (r *reader) claimAll(n int, lease time.Duration) {
	r.t.Helper()
	for ; n > 0; n -= 1000 {
		r.claim(min(n, 1000), lease)
	}
}

// keysOfClaim is the number of keys that a claim of 100 messages reads: the row of the queue, and for each message its entry and its row.
const keysOfClaim int64 = 1 + 2*100

func TestTheKeysReadByAClaimDoNotDependOnTheBacklog(t *testing.T) {
	t.Parallel()
	for _, backlog := range []struct {
		name                     string
		ready, leased, scheduled int
	}{
		{name: "1,000 ready", ready: 1000},
		{name: "20,000 ready", ready: 20_000},
		{name: "many leased", ready: 1000, leased: testdb.Of(20_000, 100_000)},
		{name: "2,000 scheduled", ready: 1000, scheduled: 2000},
	} {
		t.Run(backlog.name, func(t *testing.T) {
			t.Parallel()
			r := &reader{queue: newQueue(t, mssqltest.Options{Clock: mssqltest.Stopped(), ReadCommittedSnapshot: true})}
			r.store(backlog.leased, 0)
			r.claimAll(backlog.leased, 100*time.Hour)
			r.store(backlog.scheduled, 100*time.Hour)
			r.store(backlog.ready, 0)
			r.claimAll(100, time.Minute)
			for range 2 {
				r.ResetQueryStats()
				r.claim(100, time.Minute)
				require.Equal(t, keysOfClaim+1, cost(r.queue, "leased_by = @by").KeysRead, "the head itself, and none of those before it that are due at the same time")
			}
			const passed = int64(300)
			r.ResetQueryStats()
			require.Len(t, r.rows(r.NextDue(r.heads)), 1)
			require.LessOrEqual(t, cost(r.queue, "due_in_ms").KeysRead, passed+10)

			r.heads = sqlbatch.Heads{}
			r.ResetQueryStats()
			r.claim(100, time.Minute)
			require.Equal(t, keysOfClaim+passed+int64(backlog.leased), cost(r.queue, "leased_by = @by").KeysRead, "from the beginning")
		})
	}
}

// TestTheCostOfAMessageByTheNumberOfConsumers states the keys that claims of 16 read and the locks that they take, per message: two keys, its
// entry and its row, and four locks, S on both, and U and X on the row. Each claim also reads the row of the queue, and passes its head and
// what other consumers have claimed since its consumer's last claim: a key and two locks for a leased message, a key and a lock for a ghost.
// Messages of one send are due at the same time.
func TestTheCostOfAMessageByTheNumberOfConsumers(t *testing.T) {
	t.Parallel()
	const batch, rounds = 16, 4
	for _, c := range []struct {
		consumers   int
		ghosts      bool
		keys, locks float64
	}{
		{1, false, 2.125, 4.125}, {10, false, 11.125, 22.125}, {40, false, 41.125, 82.125},
		{1, true, 2.125, 4.0625}, {10, true, 11.125, 13.0625}, {40, true, 41.125, 43.0625},
	} {
		q := newQueue(t, mssqltest.Options{Clock: mssqltest.Stopped(), ReadCommittedSnapshot: true, KeepGhosts: c.ghosts})
		r := &reader{queue: q}
		r.store(c.consumers*batch*(rounds+1), 0)
		consumers := make([]reader, c.consumers)
		turn := func() {
			for i := range consumers {
				consumers[i].queue = q
				items := consumers[i].claim(batch, time.Minute)
				if c.ghosts {
					require.Len(t, q.rows(q.Ack(items)), batch)
				}
			}
		}
		turn()
		q.ResetQueryStats()
		for range rounds {
			turn()
		}
		sum, messages := cost(q, "leased_by = @by"), float64(c.consumers*batch*rounds)
		require.Equal(t, c.keys, float64(sum.KeysRead)/messages, "%d consumers, ghosts: %v", c.consumers, c.ghosts)
		require.Equal(t, c.locks, float64(sum.Locks)/messages, "%d consumers, ghosts: %v", c.consumers, c.ghosts)
	}
}

// The columns that claims, extensions and releases change are in no index: these leave no ghosts.
func TestOnlyMovesAndEndsOfAMessageWriteAnIndex(t *testing.T) {
	t.Parallel()
	q := newQueue(t, mssqltest.Options{Clock: mssqltest.Stopped()})
	rows := makeRows(10, 0)
	for i := range rows {
		rows[i].Key = fmt.Sprint(i)
	}
	written := func(st sqlbatch.Statement, rows int) int64 {
		t.Helper()
		q.ResetQueryStats()
		require.Len(t, q.rows(st), rows)
		return cost(q, "").KeysWritten
	}
	require.Equal(t, int64(20), written(q.Enqueue(rows), 0), "an entry of the due time and one of the key")
	require.Zero(t, written(q.Claim(claimTen), 10))
	q.Clock().Advance(claimTen.Lease)
	require.Zero(t, written(q.Rescue(sqlbatch.RescueParams{MaxCrashes: 8}), 10), "the first expired lease delays nothing")
	again := q.rows(q.Claim(claimTen))
	items := itemsOf(again)
	require.Equal(t, int64(1), again[0][4])
	require.Zero(t, written(q.Extend(suite.Consumer, items, time.Hour), 10))
	require.Zero(t, written(q.Release(suite.Releases(items[:2])), 2))
	require.Equal(t, int64(4), written(q.Nack([]sqlbatch.NackItem{{Item: items[2], Delay: time.Second}, {Item: items[3], Delay: time.Second}}), 2), "removed from its place and added to another")
	require.Equal(t, int64(12), written(q.Ack(items[4:]), 6))
}

// A count of one state reads at most as many entries of other states as the limit,
// and counts exactly up to the limit.
func TestTheKeysReadByLooksDoNotDependOnOtherStates(t *testing.T) {
	t.Parallel()
	const limit, few = 400, 10
	ago := suite.HeadsAt(math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64) // a HeadMargin
	for _, c := range []struct {
		name       string
		few, other sqlbatch.State
		first      func(r *reader)        // adds the few messages
		more       func(r *reader, n int) // adds messages of the other state
		stats      int64                  // keys that they read: twice the limit of due messages
	}{
		{
			"a few leased, many scheduled", sqlbatch.Leased, sqlbatch.Scheduled,
			func(r *reader) { r.store(few, 0); r.claimAll(few, 100*time.Hour) },
			func(r *reader, n int) { r.store(n, 100*time.Hour) },
			limit,
		},
		{
			"a few scheduled, many leased", sqlbatch.Scheduled, sqlbatch.Leased,
			func(r *reader) { r.store(few, 100*time.Hour) },
			func(r *reader, n int) { r.store(n, 0); r.claimAll(n, 100*time.Hour) },
			2 * limit,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			q := &reader{queue: newQueue(t, mssqltest.Options{Clock: mssqltest.Stopped(), ReadCommittedSnapshot: true})}
			c.first(q)
			look := func() map[string]int64 {
				t.Helper()
				column := map[sqlbatch.State]int{sqlbatch.Ready: 0, sqlbatch.Scheduled: 1, sqlbatch.Leased: 2}
				keys := map[string]int64{}
				for name, ask := range map[string]struct {
					st   sqlbatch.Statement
					part string
				}{
					"stats":    {q.Stats(limit), "AS oldest_ms"},
					"next due": {q.NextDue(ago), "AS due_in_ms"},
				} {
					q.ResetQueryStats()
					got := q.rows(ask.st)
					keys[name] = cost(q.queue, ask.part).KeysRead
					if name == "stats" {
						require.Equal(t, int64(few), got[0][column[c.few]])
						require.Equal(t, int64(limit), got[0][column[c.other]])
						require.Equal(t, int64(0), got[0][column[sqlbatch.Ready]])
					}
				}
				return keys
			}
			c.more(q, 1000)
			before := look()
			require.LessOrEqual(t, before["stats"], c.stats+few+20)
			require.LessOrEqual(t, before["next due"], int64(few))
			c.more(q, 2000)
			require.Equal(t, before, look())
		})
	}
}

// A page begins at its place, even among messages that are all due at one time.
func TestAPageReadsNoKeysBeforeItsCursor(t *testing.T) {
	t.Parallel()
	const n = 10
	q := newQueue(t, mssqltest.Options{Clock: mssqltest.Stopped(), ReadCommittedSnapshot: true})
	rows := makeRows(3000, 0)
	for ; len(rows) > 0; rows = rows[500:] {
		q.exec(q.Enqueue(rows[:500]))
	}
	all := q.rows(q.Browse(sqlbatch.Ready, 3000, nil, sqlbatch.Filter{}))
	for _, at := range []int{250, 499, 2400} {
		last := all[at]
		place := &sqlbatch.Place{At: last[6].(int64), ID: suite.IDOf(last[1])}
		q.ResetQueryStats()
		require.Equal(t, all[at+1:at+1+n], q.rows(q.Browse(sqlbatch.Ready, n, place, sqlbatch.Filter{})))
		require.LessOrEqual(t, cost(q, "AS holder").KeysRead, int64(5*n), at)
	}
}

// randomRows returns messages with random sizes, priorities, delays and keys.
func randomRows(r *rand.Rand, n int) []sqlbatch.Row {
	rows := makeRows(n, 0)
	for i := range rows {
		rows[i].Priority = int8(r.IntN(4) - 1)
		rows[i].Body = make([]byte, r.IntN(9000))
		rows[i].Delay = time.Duration(r.IntN(3)) * time.Duration(r.Int64N(int64(40*24*time.Hour)))
		if r.IntN(2) == 0 {
			rows[i].Type = "order.paid"
		}
		if r.IntN(2) == 0 {
			rows[i].Headers = make([]byte, 1+r.IntN(300))
		}
		if r.IntN(2) == 0 {
			rows[i].Key = fmt.Sprintf("%x", rows[i].ID)[:1+r.IntN(32)] + fmt.Sprint(i)
		}
	}
	return rows
}

// TestAHundredThousandMessagesAreThirtyPlans counts the distinct pairs of text and declaration that are built: a server has one
// plan for each. If each message has other columns than the one before it, there are more of them: few of the rows of a small batch have all.
func TestAHundredThousandMessagesAreThirtyPlans(t *testing.T) {
	t.Parallel()
	alike := func(rows []sqlbatch.Row) {
		for i := range rows {
			rows[i].Priority, rows[i].Delay, rows[i].Type, rows[i].Headers = 0, 0, "", []byte("{}")
		}
	}
	require.Equal(t, 30, plansOfMessages(t, alike), "two enqueues of ten sizes, with and without keys, and ten other statements")
	require.LessOrEqual(t, plansOfMessages(t, func([]sqlbatch.Row) {}), 60)
}

func plansOfMessages(t *testing.T, change func([]sqlbatch.Row)) int {
	q := sqlserver.Dialect.Queue(suite.Orders)
	r := rand.New(rand.NewPCG(1, 2))
	hot := map[[2]any]bool{}
	note := func(statements ...sqlbatch.Statement) {
		for _, st := range statements {
			require.Equal(t, "sp_executesql", st.Text)
			declaration := any("")
			if len(st.Args) > 1 {
				declaration = st.Args[1]
			}
			hot[[2]any{st.Args[0], declaration}] = true
		}
	}
	for left := 100_000; left > 0; {
		n := 1 + r.IntN(512)
		if r.IntN(2) == 0 {
			n = 1 + r.IntN(8)
		}
		left -= n
		rows := make([]sqlbatch.Row, n)
		copy(rows, randomRows(r, min(n, 8))) // the others are empty: bodies take most of the time
		change(rows)
		keyless := slices.Clone(rows)
		for i := range keyless {
			keyless[i].Key = ""
		}
		rows[0].Key = "k"
		n = min(n, sqlserver.Dialect.Traits().DeadLetterItems)
		items, nacks := make([]sqlbatch.Item, n), make([]sqlbatch.NackItem, min(n, sqlserver.Dialect.Traits().NackItems))
		nacks[0].Error = strings.Repeat("é", r.IntN(1000))
		note(
			q.Enqueue(keyless), q.EnqueueNew(rows[:1+r.IntN(len(rows))]),
			q.Find(make([][16]byte, n), make([]string, r.IntN(n))),
			q.Claim(sqlbatch.ClaimParams{Rows: 1 + r.IntN(1000), Lease: time.Duration(1 + r.Int64N(int64(time.Hour))), Consumer: newID(), Salt: r.Int64N(1000), Inline: r.IntN(1000)}),
			q.NextDue(sqlbatch.Heads{}), q.Ack(items), q.Archive(items), q.Nack(nacks),
			q.Release(suite.Releases(items)), q.Rescan(),
			q.DeadLetter([]sqlbatch.DeadLetterItem{{Error: strings.Repeat("y", r.IntN(3000))}}),
			q.Extend(suite.Consumer, items, time.Duration(1+r.Int64N(int64(48*time.Hour)))),
		)
	}
	return len(hot)
}

func TestThousandsOfMessagesOfAnySizeAreFortyPlansOnTheServer(t *testing.T) {
	t.Parallel()
	ctx := testdb.Soon(t)
	q := newQueue(t, mssqltest.Options{ReadCommittedSnapshot: true})
	orders, err := chanq.Open[[]byte](ctx, q.DB(), "orders", chanq.Config{})
	require.NoError(t, err)
	before := len(q.QueryStats())
	p, err := orders.Producer(ctx, chanq.ProducerConfig{})
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(3, 4))
	const n = 3000
	for left := n; left > 0; {
		ms := make([]chanq.Message[[]byte], min(left, 1+r.IntN(300)))
		for i, row := range randomRows(r, len(ms)) {
			ms[i] = chanq.Message[[]byte]{Body: row.Body[:len(row.Body)/8], Priority: chanq.Priority(row.Priority), DedupKey: row.Key, Delay: row.Delay % (50 * time.Millisecond)}
		}
		receipts, err := p.SendBatch(ctx, ms...)
		require.NoError(t, err)
		for _, receipt := range receipts {
			if receipt.Duplicate {
				left++ // two keys were equal
			}
		}
		left -= len(ms)
	}
	require.NoError(t, p.Close(ctx))
	c, err := orders.Consume(ctx, chanq.ConsumerConfig{PollEvery: 20 * time.Millisecond})
	require.NoError(t, err)
	ended := 0
	for l := range c.All() {
		switch {
		case l.Attempt > 1 || r.IntN(4) > 0:
			require.NoError(t, l.Ack())
			ended++
		case r.IntN(3) == 0:
			require.NoError(t, l.Nack(chanq.DeadLetter(fmt.Errorf("%s", strings.Repeat("z", r.IntN(3000))))))
			ended++
		case r.IntN(2) == 0:
			require.NoError(t, l.Nack(chanq.RetryAfter(0, fmt.Errorf("%s", strings.Repeat("z", r.IntN(3000))))))
		default:
			require.NoError(t, l.Release())
		}
		if ended == n {
			break
		}
	}
	require.NoError(t, c.Shutdown(ctx))
	plans := q.QueryStats()
	require.LessOrEqual(t, len(plans)-before, 40)
	declarations := map[string]int{}
	for _, plan := range plans {
		declarations[plan.Text]++
		require.Equal(t, 1, declarations[plan.Text], "declared again: %s", plan.Text)
	}
}

func TestABatchIsThreeRequestsInItsLife(t *testing.T) {
	t.Parallel()
	inBubble(t, batchLife) // where no heartbeat comes in between, however slow the machine is
}

func batchLife(t *testing.T) {
	ctx := testdb.Soon(t)
	var sent, settled int64
	var mu sync.Mutex
	var seen sqlkind.Counter
	q := newQueue(t, mssqltest.Options{OnRequest: seen.Count})
	orders, err := chanq.Open[int](ctx, q.DB(), "orders", chanq.Config{Hooks: chanq.Hooks{
		Sent:    func(chanq.SentEvent) { mu.Lock(); sent++; mu.Unlock() },
		Settled: func(chanq.SettledEvent) { mu.Lock(); settled++; mu.Unlock() },
	}})
	require.NoError(t, err)
	seen.Take()
	const n = 2000
	send(t, ctx, orders, 1, n)
	began := time.Now()
	c, err := orders.Consume(ctx, chanq.ConsumerConfig{})
	require.NoError(t, err)
	for range n {
		require.NoError(t, (<-c.C()).Ack())
	}
	require.NoError(t, c.Shutdown(ctx))
	stats := c.Stats()
	got := seen.Take()
	require.LessOrEqual(t, got[sqlkind.Ping], int64(8), "once per connection, before its first use")
	delete(got, sqlkind.Ping)
	rescans := got[sqlkind.Rescan]
	require.NotZero(t, rescans, "before the first claim")
	require.LessOrEqual(t, rescans, 2+int64(time.Since(began)/time.Second), "and once per second")
	delete(got, sqlkind.Rescan)
	require.LessOrEqual(t, got[sqlkind.NextDue], stats.Looks)
	delete(got, sqlkind.NextDue)
	require.LessOrEqual(t, got[sqlkind.Begin], sent, "of full batches that are inserted concurrently")
	require.LessOrEqual(t, got[sqlkind.Commit], got[sqlkind.Begin])
	for _, k := range []sqlkind.Kind{sqlkind.Begin, sqlkind.Commit, sqlkind.Rollback} {
		delete(got, k)
	}
	require.Equal(t, map[sqlkind.Kind]int64{
		sqlkind.Enqueue: sent, sqlkind.Claim: stats.Claims + stats.EmptyClaims,
		sqlkind.Ack: settled, sqlkind.Join: 1, sqlkind.Leave: 1, sqlkind.Other: 1, // Other: the policy, with the heartbeat
	}, got, "one request per statement, without a reset; claims and settles without BEGIN and COMMIT")
	require.Equal(t, int64(n/500), sent)
	require.Less(t, stats.Claims+settled, int64(n/10), "and statements of many messages")
}

// Whatever the size of a group, its first and its last message are seeks, and a count ends at its limit.
func TestCausesReadAFewKeysOfEachGroup(t *testing.T) {
	t.Parallel()
	q := newQueue(t, mssqltest.Options{Clock: mssqltest.Stopped(), ReadCommittedSnapshot: true})
	const groups, each = 8, 150
	for n := range groups {
		items := q.leased(each)
		deadLetters := make([]sqlbatch.DeadLetterItem, each)
		for i, item := range items {
			deadLetters[i] = sqlbatch.DeadLetterItem{Item: item, Cause: sqlbatch.Cause(1 + n%2), Fingerprint: int64(n / 2)}
		}
		q.rows(q.DeadLetter(deadLetters))
	}
	for limit, most := range map[int]int64{1: 12 * groups, 100: (12 + 100) * groups} {
		q.ResetQueryStats()
		require.Len(t, q.rows(q.Causes(sqlbatch.Group{}, 100, limit)), groups)
		require.LessOrEqual(t, cost(q, "@groups").KeysRead, most, limit)
	}
}
