package chanqtopic_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqjobs"
	"github.com/chanq/chanq/chanqtopic"
	"github.com/chanq/chanq/prove/testdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// engines are the three databases; PostgreSQL in the long tier.
var engines = []testdb.Engine{testdb.Memory, testdb.Emulator, testdb.EmulatorVersions, testdb.SQLite, testdb.Postgres}

// plain is the configuration of most queues.
var plain = chanq.Config{History: chanq.HistoryOff}

// withQueues migrates the table of subscriptions, and some queues.
func withQueues(w *testdb.World, names ...string) {
	w.Helper()
	for _, name := range names {
		testdb.QueueOf[string](w, name, plain)
	}
	require.NoError(w, chanqtopic.Migrate(w.Soon(), w.Tables(), chanq.Config{}))
}

func subscribe(w *testdb.World, queue string, f chanqtopic.Filter) {
	w.Helper()
	s := chanqtopic.Subscription{Topic: "orders", Queue: queue, Filter: f}
	require.NoError(w, chanqtopic.Subscribe(w.Soon(), w.DB, s, chanq.Config{}))
}

func open[T any](w *testdb.World, cfg chanq.Config) *chanqtopic.Topic[T] {
	w.Helper()
	topic, err := chanqtopic.Open[T](w.Soon(), w.DB, "orders", cfg)
	require.NoError(w, err)
	return topic
}

func publish[T any](w *testdb.World, topic *chanqtopic.Topic[T], ms ...chanq.Message[T]) error {
	return chanq.InTx(w.Soon(), w.DB, func(ctx context.Context, tx *sql.Tx) error { return topic.Publish(ctx, tx, ms...) })
}

// queued returns the bodies of a queue, sorted.
func queued(w *testdb.World, queue string) (bodies []string) {
	w.Helper()
	n := chanq.Names{Dialect: w.Engine.ChanqDialect(), Queue: queue}
	rows, err := w.DB.QueryContext(w.Soon(), n.SQL("SELECT body FROM {live}"))
	require.NoError(w, err)
	defer rows.Close()
	for rows.Next() {
		var body []byte
		require.NoError(w, rows.Scan(&body))
		bodies = append(bodies, string(body))
	}
	require.NoError(w, rows.Err())
	slices.Sort(bodies)
	return bodies
}

func TestEachQueueThatSubscribesGetsTheMessagesOfItsFilter(t *testing.T) {
	testdb.OnEach(t, engines, func(w *testdb.World) {
		withQueues(w, "all", "german", "vip", "both", "none")
		subscribe(w, "all", chanqtopic.Filter{})
		subscribe(w, "german", chanqtopic.Filter{Equal: map[string]string{"country": "de"}})
		subscribe(w, "vip", chanqtopic.Filter{Present: []string{"vip"}})
		subscribe(w, "both", chanqtopic.Filter{Equal: map[string]string{"country": "de", "late": ""}, Present: []string{"vip"}})
		other := chanqtopic.Subscription{Topic: "order.paid", Queue: "none"}
		require.NoError(w, chanqtopic.Subscribe(w.Soon(), w.DB, other, chanq.Config{}))
		topic := open[string](w, plain)
		message := func(body string, headers ...string) chanq.Message[string] {
			m := chanq.Message[string]{Body: body, Headers: map[string]string{}}
			for i := 0; i < len(headers); i += 2 {
				m.Headers[headers[i]] = headers[i+1]
			}
			return m
		}
		require.NoError(w, publish(w, topic, message("1"), message("2", "country", "de"), message("3", "country", "DE", "vip", ""),
			message("4", "country", "de", "vip", "no", "late", ""), message("5", "country", "de", "vip", "yes")))
		require.NoError(w, publish(w, topic), "nothing")
		require.Equal(w, []string{"1", "2", "3", "4", "5"}, queued(w, "all"))
		require.Equal(w, []string{"2", "4", "5"}, queued(w, "german"))
		require.Equal(w, []string{"3", "4", "5"}, queued(w, "vip"))
		require.Equal(w, []string{"4"}, queued(w, "both"))
		require.Empty(w, queued(w, "none"))

		rolledBack := errors.New("rolled back")
		require.Equal(w, rolledBack, chanq.InTx(w.Soon(), w.DB, func(ctx context.Context, tx *sql.Tx) error {
			require.NoError(w, topic.Publish(ctx, tx, message("6")))
			return rolledBack
		}))
		require.Len(w, queued(w, "all"), 5)

		// A second Subscribe replaces the filter, and Unsubscribe leaves the messages.
		subscribe(w, "german", chanqtopic.Filter{})
		require.NoError(w, chanqtopic.Unsubscribe(w.Soon(), w.DB, "orders", "all", chanq.Config{}))
		require.NoError(w, publish(w, topic, message("7")))
		require.Equal(w, []string{"2", "4", "5", "7"}, queued(w, "german"))
		require.Len(w, queued(w, "all"), 5)
		list, err := chanqtopic.List(w.Soon(), w.DB, chanq.Config{})
		require.NoError(w, err)
		require.Equal(w, []chanqtopic.Subscription{
			other,
			{Topic: "orders", Queue: "both", Filter: chanqtopic.Filter{Equal: map[string]string{"country": "de", "late": ""}, Present: []string{"vip"}}},
			{Topic: "orders", Queue: "german"},
			{Topic: "orders", Queue: "vip", Filter: chanqtopic.Filter{Present: []string{"vip"}}},
		}, list)
	})
}

// All fields of a message arrive, and jobs of chanqjobs do. An ordered queue gets the Key.
func TestAMessageArrivesAsItWasPublished(t *testing.T) {
	paid := chanqjobs.Define[int]("paid")
	testdb.OnEach(t, engines, func(w *testdb.World) {
		cfg := chanq.Config{History: chanq.HistoryOff, Codec: chanqjobs.Codec(nil)}
		mails := testdb.QueueOf[chanqjobs.Job](w, "mails", cfg)
		cfg.Spec = chanq.Spec{Kind: chanq.KindOrdered, Slots: 2}
		books := testdb.QueueOf[chanqjobs.Job](w, "books", cfg)
		withQueues(w)
		subscribe(w, "mails", chanqtopic.Filter{})
		subscribe(w, "books", chanqtopic.Filter{})
		topic := open[chanqjobs.Job](w, cfg)
		m := paid.New(7)
		m.ID, m.Headers, m.TTL, m.DedupKey, m.Key = chanq.NewID(), map[string]string{"a": "b"}, time.Hour, "order 7", "ada"
		require.NoError(w, publish(w, topic, m))
		require.NoError(w, publish(w, topic, m), "a duplicate of each")
		for key, q := range map[string]*chanq.Queue[chanqjobs.Job]{"": mails, "ada": books} {
			l := testdb.Receive(w, testdb.Start(w, q, chanq.ConsumerConfig{}).C(), "the job")
			job, err := paid.Open(l)
			require.NoError(w, err)
			require.Equal(w, 7, job.Body)
			require.Equal(w, []any{m.ID, "paid", m.Headers, key, true},
				[]any{l.ID, l.Type, l.Headers, l.Key, testdb.Get(w, q, m.ID).DedupKey == "order 7"})
			require.NoError(w, l.Ack())
		}
		m.Delay = time.Minute
		err := publish(w, topic, m)
		require.ErrorContains(w, err, "chanqtopic: publish orders: queue books: ")
		require.ErrorContains(w, err, "Message.Delay is 1m0s: must be 0, since queue books is ordered")
	})
}

// What Publish refuses leaves the transaction as it was: it is committed here.
func TestPublishRefusesBeforeItStores(t *testing.T) {
	testdb.OnEach(t, engines, func(w *testdb.World) {
		_, err := chanqtopic.Open[string](w.Soon(), w.Open(), "orders", plain)
		require.ErrorIs(w, err, chanq.ErrNoSchema)
		require.ErrorContains(w, err, "run chanqtopic.Migrate, or the command: chanq topic migrate")
		withQueues(w, "a", "mails", "z")
		tiny := chanq.Config{History: chanq.HistoryOff, Spec: chanq.Spec{MaxBody: 3}}
		testdb.QueueOf[string](w, "tiny", tiny)
		topic := open[string](w, plain)
		refused := func(m chanq.Message[string]) (err error) {
			w.Helper()
			require.NoError(w, chanq.InTx(w.Soon(), w.DB, func(ctx context.Context, tx *sql.Tx) error {
				err = topic.Publish(ctx, tx, m)
				return nil
			}))
			require.Error(w, err)
			return err
		}
		err = refused(chanq.Msg("x"))
		require.ErrorIs(w, err, chanqtopic.ErrNoSubscriptions)
		require.EqualError(w, err, "chanqtopic: publish orders: no subscriptions")

		subscribe(w, "a", chanqtopic.Filter{})
		subscribe(w, "tiny", chanqtopic.Filter{})
		err = refused(chanq.Msg("long"))
		require.ErrorIs(w, err, chanq.ErrTooLarge)
		require.ErrorContains(w, err, "chanqtopic: publish orders: queue tiny: ")
		require.NoError(w, chanqtopic.Unsubscribe(w.Soon(), w.DB, "orders", "tiny", chanq.Config{}))

		subscribe(w, "mails", chanqtopic.Filter{})
		subscribe(w, "z", chanqtopic.Filter{})
		require.NoError(w, publish(w, topic, chanq.Msg("1")))
		drop := func(queue string) {
			require.NoError(w, chanqadmin.DropWithMessages(w.Soon(), w.Tables(), queue, chanq.Config{}, chanqadmin.Change{}))
		}
		drop("mails")
		err = refused(chanq.Msg("2"))
		require.ErrorIs(w, err, chanq.ErrNoSchema)
		require.ErrorContains(w, err, "chanqtopic: publish orders: queue mails: ")
		require.ErrorContains(w, err, "it subscribes, but was dropped: migrate it, or call chanqtopic.Unsubscribe, or the command: "+
			"chanq topic unsubscribe mails orders")
		require.Equal(w, []string{"1"}, queued(w, "a"))
		require.Equal(w, []string{"1"}, queued(w, "z"))

		withQueues(w, "mails") // made again: the topic opens it again
		require.NoError(w, publish(w, topic, chanq.Msg("3")))
		require.Equal(w, []string{"3"}, queued(w, "mails"))
		require.ErrorContains(w, topic.Publish(w.Soon(), nil, chanq.Msg("x")), "tx must not be nil")
		require.ErrorContains(w, topic.Publish(w.Soon(), w.DB, chanq.Msg("x")), "which commits each statement immediately")
	})
}

// Also for a queue that has subscribed since the topic was opened.
func TestPublishNeedsNoOtherConnection(t *testing.T) {
	testdb.OnEach(t, engines, func(w *testdb.World) {
		withQueues(w, "mails")
		_, db := w.Connect()
		db.SetMaxOpenConns(1)
		topic, err := chanqtopic.Open[string](w.Soon(), db, "orders", plain)
		require.NoError(w, err)
		subscribe(w, "mails", chanqtopic.Filter{})
		require.NoError(w, chanq.InTx(w.Soon(), db, func(ctx context.Context, tx *sql.Tx) error {
			return topic.Publish(ctx, tx, chanq.Msg("1"))
		}))
		require.Equal(w, []string{"1"}, queued(w, "mails"))
	})
}

func TestSubscribeChecksItsArguments(t *testing.T) {
	testdb.OnEach(t, engines[:2], func(w *testdb.World) {
		s := chanqtopic.Subscription{Topic: "orders", Queue: "mails"}
		require.ErrorIs(w, chanqtopic.Subscribe(w.Soon(), w.Open(), s, chanq.Config{}), chanq.ErrNoSchema)
		_, err := chanqtopic.List(w.Soon(), w.DB, chanq.Config{})
		require.ErrorContains(w, err, "run chanqtopic.Migrate")
		withQueues(w, "other")
		err = chanqtopic.Subscribe(w.Soon(), w.DB, s, chanq.Config{})
		require.ErrorIs(w, err, chanq.ErrNoSchema)
		require.ErrorContains(w, err, "chanqtopic: subscribe mails to orders: ")
		require.ErrorContains(w, err, "there is no such queue; run chanq.Migrate, or the command: chanq migrate mails")
		err = chanqtopic.Unsubscribe(w.Soon(), w.DB, "orders", "mails", chanq.Config{})
		require.ErrorIs(w, err, chanqtopic.ErrNoSubscriptions)
		require.EqualError(w, err, "chanqtopic: unsubscribe mails from orders: no subscriptions")
		for _, topic := range []string{"", "Orders", "a b", "a..b", ".a", "a-", strings.Repeat("x", 101)} {
			s.Topic = topic
			require.ErrorContains(w, chanqtopic.Subscribe(w.Soon(), w.DB, s, chanq.Config{}), "must be 1 to 100 letters a to z", topic)
			_, err := chanqtopic.Open[string](w.Soon(), w.DB, topic, plain)
			require.ErrorContains(w, err, "must be 1 to 100 letters a to z", topic)
		}
		s = chanqtopic.Subscription{Topic: strings.Repeat("x", 100), Queue: "other"}
		require.NoError(w, chanqtopic.Subscribe(w.Soon(), w.DB, s, chanq.Config{}))
		require.NoError(w, chanqtopic.Subscribe(w.Soon(), w.DB, s, chanq.Config{}), "again")
	})
}

// Queues subscribe and unsubscribe while several programs publish. A queue has each message whose Publish began after its
// Subscribe had returned and ended before its Unsubscribe began, and none whose Publish began after its Unsubscribe had
// returned.
func TestASubscriptionIsServedFromTheReturnOfSubscribeOn(t *testing.T) {
	const queues, publishers, messages = 4, 3, 50
	testdb.OnEach(t, engines, func(w *testdb.World) {
		names := []string{"always"}
		for i := range queues {
			names = append(names, fmt.Sprint("q", i))
		}
		withQueues(w, names...)
		subscribe(w, "always", chanqtopic.Filter{})
		const unsubscribed, subscribed, phases = 0, 2, 4 // the others are calls
		var mu sync.Mutex
		phase := map[string]int{"always": subscribed}
		next := func(queue string) {
			mu.Lock()
			defer mu.Unlock()
			phase[queue]++
		}
		var dbs [publishers]*sql.DB
		var topics [publishers]*chanqtopic.Topic[string]
		for p := range publishers {
			_, dbs[p] = w.Connect()
			var err error
			topics[p], err = chanqtopic.Open[string](w.Soon(), dbs[p], "orders", plain)
			require.NoError(w, err)
		}
		mustHave, mustNotHave := map[string][]string{}, map[string][]string{}
		var publishing, all sync.WaitGroup
		published := make(chan struct{})
		over := func() bool {
			select {
			case <-published:
				return true
			default:
				return false
			}
		}
		for q := range queues {
			random := rand.New(rand.NewPCG(uint64(q), 1))
			all.Go(func() {
				queue := fmt.Sprint("q", q)
				s := chanqtopic.Subscription{Topic: "orders", Queue: queue}
				for !over() {
					next(queue)
					if err := chanqtopic.Subscribe(w.Soon(), w.DB, s, chanq.Config{}); err != nil {
						w.Errorf("subscribe: %v", err)
					}
					next(queue)
					time.Sleep(time.Duration(random.IntN(40)) * time.Millisecond)
					next(queue)
					if err := chanqtopic.Unsubscribe(w.Soon(), w.DB, "orders", queue, chanq.Config{}); err != nil {
						w.Errorf("unsubscribe: %v", err)
					}
					next(queue)
					time.Sleep(time.Duration(random.IntN(40)) * time.Millisecond)
				}
			})
		}
		for p := range publishers {
			db, topic := dbs[p], topics[p]
			publishing.Go(func() {
				for n := range messages {
					body := fmt.Sprintf("%d-%d", p, n)
					mu.Lock()
					before := maps.Clone(phase)
					mu.Unlock()
					err := chanq.InTx(w.Soon(), db, func(ctx context.Context, tx *sql.Tx) error { return topic.Publish(ctx, tx, chanq.Msg(body)) })
					if err != nil {
						w.Errorf("publish: %v", err)
						return
					}
					mu.Lock()
					for _, queue := range names {
						switch is := phase[queue]; {
						case is != before[queue]: // it may have it
						case is%phases == subscribed:
							mustHave[queue] = append(mustHave[queue], body)
						case is%phases == unsubscribed:
							mustNotHave[queue] = append(mustNotHave[queue], body)
						}
					}
					mu.Unlock()
					time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond)
				}
			})
		}
		publishing.Wait()
		close(published)
		all.Wait()
		served, not := 0, 0
		for _, queue := range names {
			has := map[string]int{}
			for _, body := range queued(w, queue) {
				has[body]++
				require.Equal(w, 1, has[body], "%s has a message twice", queue)
			}
			for _, body := range mustHave[queue] {
				require.Equal(w, 1, has[body], "%s lacks %s", queue, body)
				served++
			}
			for _, body := range mustNotHave[queue] {
				require.Zero(w, has[body], "%s has %s", queue, body)
				not++
			}
		}
		w.Logf("%d deliveries were due, %d were not", served, not)
		require.GreaterOrEqual(w, served, publishers*messages)
		require.Positive(w, not)
	})
}
