package chanqadmin_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
)

// found returns the IDs of all messages with a text, and how many messages were read.
func found(w *testdb.World, q *chanqadmin.Queue, s chanqadmin.Search) (ids []chanq.ID, looked int) {
	w.Helper()
	for {
		page, err := q.Search(w.Soon(), s)
		require.NoError(w, err)
		for _, e := range page.Entries {
			require.Nil(w, e.Body)
			require.NotZero(w, e.EnqueuedAt, "the whole message, without its body")
			ids = append(ids, e.ID)
		}
		looked += page.Looked
		if s.After = page.Next; s.After == "" {
			return ids, looked
		}
	}
}

func TestASearchFindsMessagesInEveryState(t *testing.T) {
	testdb.OnEach(t, testdb.Engines(), func(w *testdb.World) {
		for _, kind := range []chanq.Kind{chanq.KindPlain, chanq.KindOrdered} {
			q := w.Queue("q_"+kind.String(), chanq.Config{Spec: chanq.Spec{Kind: kind, Retain: time.Hour}})
			key := map[chanq.Kind]string{chanq.KindOrdered: "customer 7"}[kind]
			var ids []chanq.ID
			send := func(m chanq.Message[string]) { ids = append(ids, testdb.Send(w, q, m)...) }
			lease := func() *testdb.Held[string] { return testdb.Lease(w, q, 1, time.Hour)[0] }
			send(chanq.Message[string]{Body: "acked", Type: "mail", Key: key})
			require.NoError(w, lease().Ack())
			send(chanq.Message[string]{Body: "dead", Headers: map[string]string{"tenant": `a"cme<`}})
			require.NoError(w, lease().Nack(chanq.DeadLetter(errors.New("no account 4711 of 100 %"))))
			send(chanq.Message[string]{Body: "leased", DedupKey: "report-7"})
			lease()
			send(chanq.Message[string]{Body: "ready", Type: "mail", Key: key, Headers: map[string]string{"lang": "größer"}})
			send(chanq.Message[string]{Body: "ready", Type: "mailer", DedupKey: "report-70"})
			admin := testdb.Admin(q)
			for text, want := range map[string][]chanq.ID{
				"mail":                           {ids[3], ids[0]}, // live before done
				"mailer":                         {ids[4]},
				"report-7":                       {ids[2]},
				"4711 of 100 %":                  {ids[1]},
				`tenant=a"cme<`:                  {ids[1]},
				"cme<":                           {ids[1]},
				"größer":                         {ids[3]},
				"lang":                           {ids[3]},
				ids[0].String():                  {ids[0]},
				strings.ToUpper(ids[1].String()): {ids[1]},
				chanq.NewID().String():           nil,
				"acked":                          nil, // bodies are not searched
				"report":                         nil,
				"' OR 1=1 --":                    nil,
				strings.Repeat("x", 2000):        nil,
			} {
				for limit := range 3 {
					list, looked := found(w, admin, chanqadmin.Search{Text: text, Limit: limit})
					require.Equal(w, want, list, text)
					if _, err := chanq.ParseID(text); err != nil {
						require.Equal(w, 5, looked, text)
					}
				}
			}
			if kind == chanq.KindOrdered {
				list, _ := found(w, admin, chanqadmin.Search{Text: "customer 7", Limit: 1})
				require.Equal(w, []chanq.ID{ids[3], ids[0]}, list)
			}
		}
	})
}

func TestASearchDoesNotTellWhatIsConcealed(t *testing.T) {
	testdb.OnEach(t, testdb.Engines(), func(w *testdb.World) {
		q := w.Queue("orders", chanq.Config{})
		ids := testdb.Send(w, q, chanq.Message[string]{Body: "a", DedupKey: "secret-1", Type: "mail", Headers: map[string]string{"token": "secret-1"}})
		conceal := func(e *chanqadmin.Entry) {
			e.DedupKey = ""
			for name := range e.Headers {
				e.Headers[name] = ""
			}
		}
		list, _ := found(w, testdb.Admin(q), chanqadmin.Search{Text: "secret-1", Conceal: conceal})
		require.Empty(w, list)
		page, err := testdb.Admin(q).Search(w.Soon(), chanqadmin.Search{Text: "mail", Conceal: conceal})
		require.NoError(w, err)
		require.Equal(w, ids[0], page.Entries[0].ID)
		require.Equal(w, map[string]string{"token": ""}, page.Entries[0].Headers)
		require.Empty(w, page.Entries[0].DedupKey)
	})
}

// A search reads for a limited time, says how far it came, and goes on there.
func TestASearchIsBoundedInTime(t *testing.T) {
	testdb.Run(t, testdb.Memory, func(w *testdb.World) {
		q := testdb.Admin(w.Queue("orders", chanq.Config{}))
		const many = 5_500
		_, err := w.DB.Exec(fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
			INSERT INTO chanq_orders (id, type, body) SELECT CAST(printf('%%016d', i) AS BLOB), iif(i = 1, 'rare', 'usual'), x'00' FROM n`, many))
		require.NoError(t, err)
		w.Faults.Inject(func(op faultdb.Op) (f faultdb.Fault) {
			if strings.Contains(op.Text, "last_error") && op.Kind == faultdb.Query {
				time.Sleep(700 * time.Millisecond) // in a bubble
			}
			return f
		})
		defer w.Faults.Inject(nil)
		began := time.Now()
		page, err := q.Search(w.Soon(), chanqadmin.Search{Text: "rare"})
		require.NoError(t, err)
		require.Equal(t, chanqadmin.Page{Next: "live.30303030-3030-3030-3030-303033353031", Looked: 2000}, chanqadmin.Page{Next: page.Next, Looked: page.Looked, Entries: page.Entries})
		require.Equal(t, 2100*time.Millisecond, time.Since(began), "this driver ignores the end of its context")
		page, err = q.Search(w.Soon(), chanqadmin.Search{Text: "rare", After: page.Next, Within: time.Minute})
		require.NoError(t, err)
		require.Len(t, page.Entries, 1)
		require.Equal(t, many-2000, page.Looked)
		require.Empty(t, page.Next)
		gate := make(chan struct{})
		defer close(gate)
		w.Faults.Inject(func(op faultdb.Op) (f faultdb.Fault) {
			if strings.Contains(op.Text, "last_error") && op.Kind == faultdb.Query {
				return faultdb.Hold(gate)
			}
			return f
		})
		began = time.Now()
		_, err = q.Search(w.Soon(), chanqadmin.Search{Text: "rare"})
		require.Error(t, err, "nothing was read")
		require.Equal(t, 2*time.Second, time.Since(began))
	})
}

func TestASearchRefusesWrongArguments(t *testing.T) {
	q := testdb.Admin(filled(t, chanq.Config{}))
	for _, s := range []chanqadmin.Search{
		{}, {Text: strings.Repeat("x", 1<<20)}, {Text: "a\x00"}, {Text: "\xff"}, {Text: "a", Limit: -1}, {Text: "a", Limit: 1001}, {Text: "a", Within: -1},
		{Text: "a", After: "x"}, {Text: "a", After: "live.x"}, {Text: "a", After: "ready.0.1." + chanqadmin.PageToken(chanq.NewID().String())},
	} {
		_, err := q.Search(t.Context(), s)
		require.ErrorContains(t, err, "must be", "%.100v", s)
		require.Less(t, len(err.Error()), 300)
	}
}

func TestAnEstimateIsGivenOnlyWhereItIsKnown(t *testing.T) {
	const limit = 10_000
	about := chanqadmin.Estimates{Live: 3_000_000, Dead: 12_345, Done: 9_000}
	full := chanqadmin.Stats{Ready: limit, Scheduled: 20, Leased: 30, Dead: limit, Done: limit, Limit: limit, About: about}
	for state, want := range map[chanqadmin.State]int{
		chanqadmin.StateReady: 2_999_950, chanqadmin.StateScheduled: 20, chanqadmin.StateLeased: 30, chanqadmin.StateDead: 12_345,
		chanqadmin.StateDone: 0, // below what was counted: it is wrong
	} {
		require.Equal(t, want, full.Estimate(state), state)
	}
	require.Zero(t, full.Messages(), "Done is not known")
	full.Done = 5
	require.Equal(t, 3_000_000+12_345+5, full.Messages())
	full.Scheduled = limit
	require.Zero(t, full.Estimate(chanqadmin.StateReady), "both have more")
	require.Zero(t, chanqadmin.Stats{Ready: limit, Limit: limit}.Messages())
	require.Equal(t, 7, chanqadmin.Stats{Ready: 7, Limit: limit}.Messages())
	for n, want := range map[int]string{0: "about 0", 12_345: "about 12 k", 123_456: "about 120 k", 2_949_950: "about 2.9 M", 2_141_000_000: "about 2.1 G"} {
		require.Equal(t, want, chanqadmin.About(n))
	}
}

// More messages than are counted are estimated, by a server.
func TestADeepQueueIsEstimated(t *testing.T) {
	testdb.OnEach(t, testdb.Engines(), func(w *testdb.World) {
		q := w.Queue("orders", chanq.Config{})
		var all []chanq.Message[string]
		for range 10_050 {
			all = append(all, chanq.Message[string]{Body: "x"})
		}
		testdb.Send(w, q, all...)
		var stats chanqadmin.Stats
		estimated := func() bool {
			var err error
			stats, err = testdb.Admin(q).Stats(w.Soon())
			require.NoError(w, err)
			require.Equal(w, chanqadmin.StatsLimit, stats.Ready)
			return stats.Estimate(chanqadmin.StateReady) > 0
		}
		if w.Engine.ChanqDialect() == chanq.DialectSQLite {
			require.False(w, estimated())
			return
		}
		w.Eventually("the server has counted", estimated) // PostgreSQL does so after a transaction
		require.InDelta(w, len(all), stats.Estimate(chanqadmin.StateReady), 50)
		require.Zero(w, stats.About.Dead)
	})
}
