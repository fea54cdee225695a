// Package guides has the code of docs/guides that no other example has.
package guides

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqcodec"
	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/pgnotify"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// memory returns a new database in memory.
func memory() *sql.DB {
	db, err := embedded.Open(":memory:")
	check(err)
	return db
}

// openQueue creates and opens a queue.
func openQueue[T any](ctx context.Context, db *sql.DB, name string, spec chanq.Spec) *chanq.Queue[T] {
	cfg := chanq.Config{Spec: spec}
	check(chanq.Migrate(ctx, db, name, cfg))
	queue, err := chanq.Open[T](ctx, db, name, cfg)
	check(err)
	return queue
}

func Example_shortRetriesOfAKey() {
	ctx := context.Background()
	db := memory()
	defer db.Close()
	payments := openQueue[int](ctx, db, "payments", chanq.Spec{Kind: chanq.KindOrdered})
	_, err := payments.Send(ctx, chanq.Message[int]{Key: "ada", Body: 1}, chanq.Message[int]{Key: "ada", Body: 2})
	check(err)

	later := chanq.ExponentialBackoff(100*time.Millisecond, 10*time.Second) // a failed message delays its key
	consumer, err := payments.Consume(ctx, chanq.ConsumerConfig{Backoff: later})
	check(err)
	check(consumer.Handle(8, func(_ context.Context, lease *chanq.Lease[int]) error {
		fmt.Println(lease.Body, "attempt", lease.Attempt)
		if lease.Body == 1 && lease.Attempt == 1 {
			return errors.New("the bank is away")
		}
		if lease.Body == 2 {
			consumer.Stop()
		}
		return nil
	}))
	// Output:
	// 1 attempt 1
	// 1 attempt 2
	// 2 attempt 1
}

func Example_delays() {
	ctx := context.Background()
	db := memory()
	defer db.Close()
	mails := openQueue[string](ctx, db, "mails", chanq.Spec{})
	for range 2 {
		receipts, err := mails.Send(ctx, chanq.Message[string]{
			Body:     "Your cart is waiting",
			Delay:    time.Hour,      // it is due in an hour
			TTL:      24 * time.Hour, // if no consumer has claimed it by then, it is dead-lettered
			DedupKey: "cart 7",       // while it is in the queue, no other message with this key is stored
		})
		check(err)
		fmt.Println(receipts[0].Duplicate)
	}
	_, err := mails.Send(ctx, chanq.Message[string]{Body: "Reset your password", Priority: chanq.PriorityUrgent})
	check(err)

	ids, err := mails.Find(ctx, "cart 7")
	check(err)
	due, err := mails.RunNow(ctx, ids...)
	check(err)
	fmt.Println(len(due), "due now") // 0: it was ready, leased or gone
	// Output:
	// false
	// true
	// 1 due now
}

func Example_duplicates() {
	ctx := context.Background()
	db := memory()
	defer db.Close()
	_, err := db.ExecContext(ctx, "CREATE TABLE documents (id INTEGER PRIMARY KEY, title TEXT NOT NULL); INSERT INTO documents VALUES (7, '')")
	check(err)
	indexing := openQueue[int](ctx, db, "indexing", chanq.Spec{})
	save := func(id int, title string) error {
		return chanq.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, "UPDATE documents SET title = $1 WHERE id = $2", title, id); err != nil {
				return err
			}
			receipts, err := indexing.SendTx(ctx, tx, chanq.Message[int]{
				Body:        id,
				DedupKey:    fmt.Sprint("index ", id),
				OnDuplicate: chanq.Debounce,  // each change in time replaces the message, and delays it
				Delay:       2 * time.Second, // until no change has come for 2 s
				DebounceMax: time.Minute,     // but not longer than 1 min after the first
			})
			if err == nil {
				fmt.Println("replaced:", receipts[0].Replaced)
			}
			return err
		})
	}
	check(save(7, "a draft"))
	check(save(7, "a title"))
	// Output:
	// replaced: false
	// replaced: true
}

func Example_status() {
	ctx := context.Background()
	db := memory()
	defer db.Close()
	reports := openQueue[int](ctx, db, "reports", chanq.Spec{Retain: 24 * time.Hour})
	admin, err := chanqadmin.Open(ctx, db, "reports", chanq.Config{})
	check(err)

	receipts, err := reports.Send(ctx, chanq.Msg(2026))
	check(err)
	id := receipts[0].ID // keep it, for example in the URL that you give to the client

	entry, err := admin.Get(ctx, id)
	switch {
	case errors.Is(err, chanq.ErrNotFound):
		fmt.Println("acked and not kept, cancelled, or never sent")
	case err != nil:
		check(err)
	case entry.State == chanqadmin.StateDead:
		fmt.Println("dead:", entry.LastError)
	default:
		fmt.Println(entry.State, "attempt", entry.Attempts)
	}

	consumer, err := reports.Consume(ctx, chanq.ConsumerConfig{StopWhenIdle: true})
	check(err)
	_, err = db.ExecContext(ctx, "CREATE TABLE results (id TEXT PRIMARY KEY, pages INTEGER)")
	check(err)
	check(consumer.Handle(1, func(ctx context.Context, lease *chanq.Lease[int]) error {
		pages := lease.Body / 2
		return chanq.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, "INSERT INTO results (id, pages) VALUES (?, ?)", lease.ID, pages); err != nil {
				return err
			}
			return lease.AckTx(ctx, tx) // the result is stored once, and the message is done
		})
	}))
	entry, err = admin.Get(ctx, id)
	check(err)
	fmt.Println(entry.State)

	receipts, err = reports.Send(ctx, chanq.Msg(2027))
	check(err)
	found, err := reports.Cancel(ctx, receipts[0].ID)
	check(err)
	fmt.Println(len(found), "cancelled") // 0: it was no longer ready, scheduled or leased
	// Output:
	// ready attempt 0
	// done
	// 1 cancelled
}

func Example_cancel() {
	ctx := context.Background()
	db := memory()
	defer db.Close()
	videos := openQueue[string](ctx, db, "videos", chanq.Spec{})
	receipts, err := videos.Send(ctx, chanq.Msg("talk.mp4"))
	check(err)
	consumer, err := videos.Consume(ctx, chanq.ConsumerConfig{PollEvery: 100 * time.Millisecond})
	check(err)
	id, started, over := receipts[0].ID, make(chan struct{}), make(chan struct{})
	convert := func(ctx context.Context, _ string) error {
		close(started)
		<-ctx.Done()
		<-over
		consumer.Stop()
		return context.Cause(ctx)
	}
	go func() {
		defer close(over)
		<-started
		found, err := videos.Cancel(ctx, id)
		check(err)
		fmt.Println(len(found), "cancelled") // 0: it was already done or dead
	}()
	check(consumer.Handle(1, func(ctx context.Context, lease *chanq.Lease[string]) error {
		err := convert(ctx, lease.Body) // returns soon after ctx is cancelled
		if errors.Is(context.Cause(ctx), chanq.ErrCancelled) {
			fmt.Println("remove the unfinished", lease.Body) // no other process continues this job
		}
		return err
	}))
	// Output:
	// 1 cancelled
	// remove the unfinished talk.mp4
}

type customer struct{ Name string }

func Example_secrets() {
	ctx := context.Background()
	db := memory()
	defer db.Close()
	key := make([]byte, 32)

	keys := chanqcodec.Keys{Current: "2026", Secrets: map[string][]byte{"2026": key}} // 32 bytes from your secret store
	sealed, err := chanqcodec.Seal(chanqcodec.Gzip(chanq.JSON, 1024), keys)
	check(err)
	cfg := chanq.Config{Codec: sealed}
	check(chanq.Migrate(ctx, db, "customers", cfg))
	customers, err := chanq.Open[customer](ctx, db, "customers", cfg)
	check(err)
	_, err = customers.Send(ctx, chanq.Msg(customer{"Ada"}))
	check(err)
	var stored []byte
	check(db.QueryRowContext(ctx, "SELECT body FROM chanq_customers").Scan(&stored))
	fmt.Println("readable:", strings.Contains(string(stored), "Ada"))

	consumer, err := customers.Consume(ctx, chanq.ConsumerConfig{StopWhenIdle: true})
	check(err)
	check(consumer.Handle(1, func(_ context.Context, lease *chanq.Lease[customer]) error {
		fmt.Println(lease.Body.Name)
		return nil
	}))
	// Output:
	// readable: false
	// Ada
}

func Example_firstDeployment() {
	ctx := context.Background()
	db := memory()
	defer db.Close()
	sealed, err := chanqcodec.Seal(nil, chanqcodec.Keys{Current: "2026", Secrets: map[string][]byte{"2026": make([]byte, 32)}})
	check(err)
	check(chanq.Migrate(ctx, db, "customers", chanq.Config{}))

	cfg := chanq.Config{Codec: chanqcodec.Pair(chanq.JSON, sealed)}
	customers, err := chanq.Open[customer](ctx, db, "customers", cfg)
	check(err)
	_, err = customers.Send(ctx, chanq.Msg(customer{"Ada"}))
	check(err)
	var stored string
	check(db.QueryRowContext(ctx, "SELECT body FROM chanq_customers").Scan(&stored))
	fmt.Println(stored)
	// Output: {"Name":"Ada"}
}

// upload is a reference to a file in a store of objects.
type upload struct {
	Bucket, Key string
	Bytes       int64
}

func Example_references() {
	ctx := context.Background()
	db := memory()
	defer db.Close()
	uploads := openQueue[upload](ctx, db, "uploads", chanq.Spec{MaxBody: 4 << 10})
	_, err := uploads.Send(ctx, chanq.Msg(upload{Bucket: "films", Key: "2026/tea.mp4", Bytes: 700 << 20}))
	check(err)
	big := openQueue[string](ctx, db, "texts", chanq.Spec{MaxBody: 4 << 10})
	_, err = big.Send(ctx, chanq.Msg(strings.Repeat("x", 5<<10)))
	fmt.Println(errors.Is(err, chanq.ErrTooLarge))
	// Output: true
}

func Example_tenants() {
	ctx := context.Background()
	db := memory()
	defer db.Close()
	tenants := []string{"ada", "bob"}

	queues := map[string]*chanq.Queue[int]{}
	for _, tenant := range tenants {
		name := "orders_" + tenant
		check(chanq.Migrate(ctx, db, name, chanq.Config{}))
		queue, err := chanq.Open[int](ctx, db, name, chanq.Config{Label: "orders/" + tenant})
		check(err)
		queues[tenant] = queue
	}
	fmt.Println(queues["ada"].Name(), queues["ada"].Label())

	cfg := chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 8, MaxKeys: 32}} // at most 32 tenants at a time
	check(chanq.Migrate(ctx, db, "invoices", cfg))
	invoices, err := chanq.Open[int](ctx, db, "invoices", cfg)
	check(err)
	for n := range 3 {
		for _, tenant := range tenants {
			_, err := invoices.Send(ctx, chanq.Message[int]{Key: tenant, Body: n})
			check(err)
		}
	}
	fmt.Println(invoices.Spec().MaxKeys)
	// Output:
	// orders_ada orders/ada
	// 32
}

type welcome struct{ UserID int }

func Example_welcome() {
	ctx := context.Background()
	db := memory()
	defer db.Close()
	mails := openQueue[welcome](ctx, db, "mails", chanq.Spec{})
	_, err := mails.Send(ctx, chanq.Message[welcome]{Body: welcome{UserID: 7}, Delay: time.Hour})
	check(err)
	_, err = mails.Send(ctx, chanq.Msg(welcome{UserID: 8}))
	check(err)
	deliver := func(_ context.Context, user int) error { fmt.Println("welcome", user); return nil }
	consumer, err := mails.Consume(ctx, chanq.ConsumerConfig{StopWhenIdle: true})
	check(err)
	check(consumer.Handle(100, func(ctx context.Context, lease *chanq.Lease[welcome]) error {
		return deliver(ctx, lease.Body.UserID)
	}))
	// Output: welcome 8
}

func Example_sendAndAck() {
	ctx := context.Background()
	db := memory()
	defer db.Close()
	orders, parcels := openQueue[string](ctx, db, "orders", chanq.Spec{}), openQueue[string](ctx, db, "parcels", chanq.Spec{})
	_, err := orders.Send(ctx, chanq.Msg("tea"))
	check(err)
	_, err = db.ExecContext(ctx, "CREATE TABLE sold (item TEXT)")
	check(err)
	consumer, err := orders.Consume(ctx, chanq.ConsumerConfig{StopWhenIdle: true})
	check(err)
	check(consumer.Handle(1, func(ctx context.Context, lease *chanq.Lease[string]) error {
		return chanq.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, "INSERT INTO sold (item) VALUES (?)", lease.Body); err != nil {
				return err
			}
			if _, err := parcels.SendTx(ctx, tx, chanq.Msg(lease.Body)); err != nil {
				return err
			}
			return lease.AckTx(ctx, tx)
		})
	}))
	empty, err := orders.Empty(ctx)
	check(err)
	waiting, err := parcels.Empty(ctx)
	check(err)
	fmt.Println(empty, waiting)
	// Output: true false
}

func Example_health() {
	ctx := context.Background()
	db := memory()
	defer db.Close()
	openQueue[string](ctx, db, "orders", chanq.Spec{})
	admin, err := chanqadmin.Open(ctx, db, "orders", chanq.Config{})
	check(err)
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, r *http.Request) {
		stats, err := admin.Stats(r.Context())
		if err != nil || stats.Paused || stats.OldestReady > 5*time.Minute {
			http.Error(w, fmt.Sprintf("paused: %v, oldest: %v, error: %v", stats.Paused, stats.OldestReady, err),
				http.StatusServiceUnavailable)
		}
	})
	ask := func() int {
		answer := httptest.NewRecorder()
		mux.ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodGet, "/healthz", http.NoBody))
		return answer.Code
	}
	fmt.Println(ask())
	check(admin.Pause(ctx, chanqadmin.Change{Reason: "handler hangs"}))
	fmt.Println(ask())
	// Output:
	// 200
	// 503
}

func Example_oneOfABatch() {
	ctx := context.Background()
	db := memory()
	defer db.Close()
	measurements := openQueue[float64](ctx, db, "measurements", chanq.Spec{})
	_, err := measurements.Send(ctx, chanq.Msg(1.5), chanq.Msg(-1.0), chanq.Msg(2.5))
	check(err)
	_, err = db.ExecContext(ctx, "CREATE TABLE measurements (value REAL NOT NULL)")
	check(err)
	consumer, err := measurements.Consume(ctx, chanq.ConsumerConfig{StopWhenIdle: true})
	check(err)
	check(consumer.HandleBatches(2, 500, 20*time.Millisecond, func(ctx context.Context, batch []*chanq.Lease[float64]) error {
		return chanq.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
			var good []*chanq.Lease[float64]
			for _, lease := range batch {
				if lease.Body < 0 {
					_ = lease.Nack(chanq.DeadLetter(errors.New("negative"))) // this one; the others are stored
					continue
				}
				if _, err := tx.ExecContext(ctx, "INSERT INTO measurements VALUES (?)", lease.Body); err != nil {
					return err
				}
				good = append(good, lease)
			}
			return chanq.AckTx(ctx, tx, good...)
		})
	}))
	var sum float64
	check(db.QueryRowContext(ctx, "SELECT SUM(value) FROM measurements").Scan(&sum))
	fmt.Println(sum, consumer.Stats().Dead, "dead")
	// Output: 4 1 dead
}

// open opens a file in development, and a server in production.
func open(dsn string) (*sql.DB, chanq.Config, func() error, error) {
	if !strings.HasPrefix(dsn, "postgres://") {
		db, err := embedded.Open(dsn) // its driver also wakes consumers
		return db, chanq.Config{}, func() error { return nil }, err
	}
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return nil, chanq.Config{}, nil, err
	}
	notifier := pgnotify.New(db, pgnotify.Config{})
	return db, chanq.Config{Notifier: notifier}, notifier.Close, nil
}

func Example_move() {
	ctx := context.Background()
	file, server := memory(), memory()
	defer file.Close()
	defer server.Close()
	from := openQueue[string](ctx, file, "mails", chanq.Spec{})
	_, err := from.Send(ctx, chanq.Message[string]{Body: `"later"`, Delay: time.Hour, Type: "reminder", DedupKey: "7"})
	check(err)
	mails := openQueue[json.RawMessage](ctx, server, "mails", chanq.Spec{})
	old, err := chanqadmin.Open(ctx, file, "mails", chanq.Config{})
	check(err)

	page, err := old.List(ctx, chanqadmin.Select{State: chanqadmin.StateScheduled}, chanqadmin.List{Limit: 1000, Bodies: true})
	check(err)
	for _, e := range page.Entries {
		_, err := mails.Send(ctx, chanq.Message[json.RawMessage]{
			ID: e.ID, Body: e.Body, Type: e.Type, Headers: e.Headers, DedupKey: e.DedupKey, Delay: max(0, time.Until(e.DueAt)),
		})
		check(err)
	}

	admin, err := chanqadmin.Open(ctx, server, "mails", chanq.Config{})
	check(err)
	moved, err := admin.Get(ctx, page.Entries[0].ID)
	check(err)
	fmt.Println(moved.State, moved.Type, string(moved.Body), time.Until(moved.DueAt) > 59*time.Minute)
	// Output: scheduled reminder "later" true
}

func TestOpenOpensAFile(t *testing.T) {
	db, cfg, closeNotifier, err := open(filepath.Join(t.TempDir(), "shop.db"))
	require.NoError(t, err)
	require.NoError(t, chanq.Migrate(t.Context(), db, "orders", cfg))
	require.NoError(t, closeNotifier())
	require.NoError(t, db.Close())
}

func TestAnAckIsStored(t *testing.T) {
	db, err := embedded.Open(":memory:")
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, chanq.Migrate(t.Context(), db, "mails", chanq.Config{}))
	mails, err := chanq.Open[string](t.Context(), db, "mails", chanq.Config{})
	require.NoError(t, err)
	_, err = mails.Send(t.Context(), chanq.Msg("Welcome"))
	require.NoError(t, err)
	consumer, err := mails.Consume(t.Context(), chanq.ConsumerConfig{})
	require.NoError(t, err)

	lease := <-consumer.C() // no sleep: it waits for the message
	require.NoError(t, lease.Ack())
	require.NoError(t, lease.Wait(t.Context())) // the ack is in the database
	empty, err := mails.Empty(t.Context())
	require.NoError(t, err)
	require.True(t, empty)
	require.NoError(t, consumer.Shutdown(t.Context()))
}

// The second holder has started, and the first one cannot start again.
func Example_fences() {
	ctx := context.Background()
	db := memory()
	defer db.Close()
	_, err := db.ExecContext(ctx, "CREATE TABLE progress (job TEXT PRIMARY KEY, pages INTEGER NOT NULL, fence INTEGER NOT NULL)")
	check(err)
	const take = `INSERT INTO progress (job, pages, fence) VALUES (?, 0, ?)
ON CONFLICT (job) DO UPDATE SET fence = excluded.fence WHERE excluded.fence >= progress.fence RETURNING pages`
	for _, fence := range []int{701, 702, 701} {
		var page int
		err := db.QueryRowContext(ctx, take, "job", fence).Scan(&page)
		fmt.Println(fence, err)
	}
	// Output:
	// 701 <nil>
	// 702 <nil>
	// 701 sql: no rows in result set
}
