package chanq_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"  // the driver "pgx"
	_ "github.com/microsoft/go-mssqldb" // the driver "sqlserver"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/mssqlnotify"
	"github.com/chanq/chanq/pgnotify"
)

type Order struct{ Number int }

// A producer and a consumer are Go channels, with a table between them.
func Example() {
	ctx := context.Background()
	db, err := embedded.Open(":memory:") // or sql.Open("sqlserver", …)
	check(err)
	defer db.Close()
	check(chanq.Migrate(ctx, db, "orders", chanq.Config{}))
	orders, err := chanq.Open[Order](ctx, db, "orders", chanq.Config{})
	check(err)

	producer, err := orders.Producer(ctx, chanq.ProducerConfig{})
	check(err)
	for n := range 3 {
		producer.C() <- chanq.Msg(Order{Number: n})
	}
	check(producer.Close(ctx)) // nil: all are stored

	consumer, err := orders.Consume(ctx, chanq.ConsumerConfig{StopWhenIdle: true})
	check(err)
	for lease := range consumer.C() { // until nothing is due
		fmt.Println("order", lease.Body.Number)
		check(lease.Ack()) // joins the next batch
	}
	check(consumer.Shutdown(ctx)) // nil: all acks are stored
	// Output:
	// order 0
	// order 1
	// order 2
}

// The same with a pool of workers.
func Example_handler() {
	ctx := context.Background()
	db, err := embedded.Open(":memory:")
	check(err)
	defer db.Close()
	cfg := chanq.Config{Hooks: chanq.LogHooks(slog.Default(), slog.LevelWarn)} // failures are logged
	check(chanq.Migrate(ctx, db, "orders", cfg))
	orders, err := chanq.Open[Order](ctx, db, "orders", cfg)
	check(err)

	_, err = orders.Send(ctx, chanq.Msg(Order{Number: 0}), chanq.Msg(Order{Number: 1}), chanq.Msg(Order{Number: 2}))
	check(err) // nil: all are stored

	consumer, err := orders.Consume(ctx, chanq.ConsumerConfig{StopWhenIdle: true}) // until nothing is due
	check(err)
	check(consumer.Handle(1, func(_ context.Context, lease *chanq.Lease[Order]) error {
		fmt.Println("order", lease.Body.Number)
		return nil // acked; after an error the message is delivered again
	})) // returns when all acks are stored
	// Output:
	// order 0
	// order 1
	// order 2
}

// A deployment calls Migrate before its programs start. Spec has the settings that all programs share.
func ExampleMigrate() {
	ctx := context.Background()
	db := memory()
	defer db.Close()
	check(chanq.Migrate(ctx, db, "orders", chanq.Config{Spec: chanq.Spec{MaxAttempts: 5, Retain: 24 * time.Hour}}))
	orders, err := chanq.Open[Order](ctx, db, "orders", chanq.Config{}) // adopts what is stored
	check(err)
	fmt.Println(orders.Spec().MaxAttempts, "attempts")
	// Output: 5 attempts
}

// Open changes nothing. It refuses a queue that does not match the program's Config.
func ExampleOpen() {
	ctx := context.Background()
	db := memory()
	defer db.Close()
	_, err := chanq.Open[Order](ctx, db, "orders", chanq.Config{})
	fmt.Println(errors.Is(err, chanq.ErrNoSchema))
	check(chanq.Migrate(ctx, db, "orders", chanq.Config{}))
	_, err = chanq.Open[Order](ctx, db, "orders", chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered}})
	fmt.Println(errors.Is(err, chanq.ErrSpec))
	// Output:
	// true
	// true
}

// Send stores all of its messages or none. A message with a DedupKey that is in the queue is not stored again.
func ExampleQueue_Send() {
	ctx := context.Background()
	db := memory()
	defer db.Close()
	orders := openQueue[Order](ctx, db, "orders")
	for range 2 {
		receipts, err := orders.Send(ctx,
			chanq.Message[Order]{Body: Order{1}, DedupKey: "order 1"},
			chanq.Message[Order]{Body: Order{2}, Delay: time.Minute, Type: "reminder"},
		)
		check(err)
		fmt.Println(receipts[0].Duplicate, receipts[1].Duplicate)
	}
	// Output:
	// false false
	// true false
}

// A reader of the channel settles each lease, and shuts the consumer down when it has enough.
func ExampleQueue_Consume() {
	ctx := context.Background()
	db := memory()
	defer db.Close()
	orders := openQueue[Order](ctx, db, "orders")
	_, err := orders.Send(ctx, chanq.Msg(Order{Number: 1}), chanq.Msg(Order{Number: 2}))
	check(err)
	consumer, err := orders.Consume(ctx, chanq.ConsumerConfig{Prefetch: 10})
	check(err)
	lease := <-consumer.C()
	fmt.Println("order", lease.Body.Number)
	check(lease.Ack())
	check(consumer.Shutdown(ctx)) // the ack is stored, and order 2 is released
	// Output: order 1
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// On SQL Server, with a notifier; the DSN is sqlserver://user:password@host?database=shop&connection+timeout=45
func ExampleOpen_sqlServer() {
	ctx := context.Background()
	db, err := sql.Open("sqlserver", os.Getenv("SHOP_DSN"))
	check(err)
	defer db.Close()
	notifier := mssqlnotify.New(db, mssqlnotify.Config{}) // wakes idle consumers of this process
	defer notifier.Close()                                // after the consumers, before the *sql.DB
	orders, err := chanq.Open[Order](ctx, db, "orders", chanq.Config{Notifier: notifier})
	check(err)
	_ = orders
}

// On PostgreSQL, with a notifier; the DSN is postgres://user:password@host/shop
func ExampleOpen_postgreSQL() {
	ctx := context.Background()
	db, err := sql.Open("pgx", os.Getenv("SHOP_DSN"))
	check(err)
	defer db.Close()
	notifier := pgnotify.New(db, pgnotify.Config{}) // wakes idle consumers of other processes
	defer notifier.Close()                          // after producers and consumers, before the *sql.DB
	orders, err := chanq.Open[Order](ctx, db, "orders", chanq.Config{Notifier: notifier})
	check(err)
	_ = orders
}

// A pool with a limit has connections for chanq, for a notifier and for handlers.
func ExampleOpen_connections() {
	ctx := context.Background()
	db, err := sql.Open("pgx", os.Getenv("SHOP_DSN"))
	check(err)
	defer db.Close()
	db.SetMaxOpenConns(9 + 2 + 20) // chanq, pgnotify, and what 20 handlers use
	notifier := pgnotify.New(db, pgnotify.Config{})
	defer notifier.Close()
	orders, err := chanq.Open[Order](ctx, db, "orders", chanq.Config{Notifier: notifier})
	check(err)
	_ = orders
}

// Change is an event in the life of a customer.
type Change struct{ Text string }

// memory returns a new database in memory.
func memory() *sql.DB {
	db, err := embedded.Open(":memory:")
	check(err)
	return db
}

// Messages with the same key are delivered one after another, in the order in which they were sent.
func ExampleConfig_ordered() {
	ctx := context.Background()
	db := memory()
	defer db.Close()

	cfg := chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered}}
	err := chanq.Migrate(ctx, db, "orders", cfg) // or: chanq migrate --ordered orders
	check(err)
	q, err := chanq.Open[Change](ctx, db, "orders", cfg)
	check(err)

	p, err := q.Producer(ctx, chanq.ProducerConfig{})
	check(err)
	customer := "ada"
	for _, change := range []Change{{"came"}, {"bought"}, {"left"}} {
		_, err := p.Send(ctx, chanq.Message[Change]{Key: customer, Body: change})
		check(err)
	}
	check(p.Close(ctx))

	c, err := q.Consume(ctx, chanq.ConsumerConfig{})
	check(err)
	check(c.Handle(8, func(_ context.Context, lease *chanq.Lease[Change]) error {
		fmt.Println(lease.Key, lease.Body.Text)
		if lease.Body.Text == "left" {
			c.Stop()
		}
		return nil
	}))
	// Output:
	// ada came
	// ada bought
	// ada left
}

// udpNotifier sends notifications as datagrams. Each process has its own address and those of the
// others. Consumers find the messages of lost datagrams at their next poll.
type udpNotifier struct {
	conn   net.PacketConn
	others []net.Addr
	joined sync.WaitGroup

	mu   sync.Mutex // guards ears
	ears map[chan struct{}]string
}

func newUDPNotifier(conn net.PacketConn, others ...net.Addr) *udpNotifier {
	b := &udpNotifier{conn: conn, others: others, ears: map[chan struct{}]string{}}
	b.joined.Go(b.hear)
	return b
}

// hear wakes the listeners of the queues that the datagrams name, until Close.
func (b *udpNotifier) hear() {
	buffer := make([]byte, 512)
	for {
		n, _, err := b.conn.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // on Windows: no process had the address of an earlier notification
		}
		b.mu.Lock()
		for ear, queue := range b.ears {
			if queue == string(buffer[:n]) {
				select {
				case ear <- struct{}{}:
				default: // already notified
				}
			}
		}
		b.mu.Unlock()
	}
}

// Notify implements chanq.Notifier.
func (b *udpNotifier) Notify(n chanq.Notification) {
	for _, other := range b.others {
		_, _ = b.conn.WriteTo([]byte(n.Queue), other)
	}
}

// Listen implements chanq.Notifier. It receives immediately, which the first value reports.
func (b *udpNotifier) Listen(queue string, _ []int) (<-chan struct{}, func()) {
	ear := make(chan struct{}, 1)
	ear <- struct{}{}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ears[ear] = queue
	return ear, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.ears, ear)
	}
}

func (b *udpNotifier) Close() {
	_ = b.conn.Close()
	b.joined.Wait()
}

// Two processes share a file, and wake each other over the network. Here both are one process.
func ExampleNotifier() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "notify")
	check(err)
	defer os.RemoveAll(dir)
	here, err := net.ListenPacket("udp", "127.0.0.1:0")
	check(err)
	there, err := net.ListenPacket("udp", "127.0.0.1:0")
	check(err)
	process := func(notifier chanq.Notifier) (*chanq.Queue[string], *sql.DB) {
		db, err := embedded.Open(filepath.Join(dir, "queue.db"))
		check(err)
		cfg := chanq.Config{Notifier: notifier}
		check(chanq.Migrate(ctx, db, "greetings", cfg))
		q, err := chanq.Open[string](ctx, db, "greetings", cfg)
		check(err)
		return q, db
	}

	notifier := newUDPNotifier(here, there.LocalAddr())
	defer notifier.Close()
	sending, db := process(notifier)
	defer db.Close()
	hears := newUDPNotifier(there, here.LocalAddr())
	defer hears.Close()
	receiving, db2 := process(hears)
	defer db2.Close()

	consumer, err := receiving.Consume(ctx, chanq.ConsumerConfig{PollEvery: time.Hour}) // to show that it is woken
	check(err)
	producer, err := sending.Producer(ctx, chanq.ProducerConfig{})
	check(err)
	for _, text := range []string{"good morning", "good evening"} {
		_, err := producer.Send(ctx, chanq.Message[string]{Body: text})
		check(err)
		lease := <-consumer.C()
		fmt.Println(lease.Body)
		check(lease.Ack())
	}
	check(producer.Close(ctx))
	check(consumer.Shutdown(ctx))
	// Output:
	// good morning
	// good evening
}

// A send whose outcome is unknown is repeated with the same ID.
func ExampleProducer_Send() {
	ctx := context.Background()
	db, err := embedded.Open(":memory:")
	check(err)
	defer db.Close()
	orders := openQueue[Order](ctx, db, "orders")
	producer, err := orders.Producer(ctx, chanq.ProducerConfig{})
	check(err)
	send := func(message chanq.Message[Order]) error {
		bound, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		receipt, err := producer.Send(bound, message)
		var failed *chanq.OpError
		if errors.As(err, &failed) && failed.Unknown {
			message.ID = receipt.ID // while it is in the queue, it is not stored twice
			_, err = producer.Send(ctx, message)
		}
		return err
	}
	fmt.Println(send(chanq.Msg(Order{Number: 1})))
	check(producer.Close(ctx))
	// Output: <nil>
}

// Hooks report events to a program's log and its alerts.
func ExampleJoinHooks() {
	alarm := func(text string, args ...any) { slog.Error(text, args...) }
	hooks := chanq.JoinHooks(chanq.LogHooks(slog.Default(), slog.LevelWarn), chanq.Hooks{
		Dead: func(e chanq.DeadEvent) { alarm("dead letter", "queue", e.Queue, "id", e.ID, "reason", e.Reason) },
		LeaseLost: func(e chanq.LeaseLostEvent) {
			alarm("handler was too slow, or the database away", "queue", e.Queue, "id", e.ID)
		},
		Availability: func(e chanq.AvailabilityEvent) {
			alarm("database", "queue", e.Queue, "up", e.Up, "error",
				e.Err)
		},
	})
	config := chanq.Config{Hooks: hooks}
	_ = config
}

// A producer takes messages from all goroutines of a program, and stores many with one statement.
func ExampleQueue_Producer() {
	ctx := context.Background()
	db := memory()
	defer db.Close()
	orders := openQueue[Order](ctx, db, "orders")
	producer, err := orders.Producer(ctx, chanq.ProducerConfig{BufferBytes: 4 << 20})
	check(err)
	for n := range 1000 {
		producer.C() <- chanq.Msg(Order{Number: n})
	}
	check(producer.Flush(ctx)) // nil: all thousand are in the database
	empty, err := orders.Empty(ctx)
	check(err)
	fmt.Println("empty:", empty)
	check(producer.Close(ctx))
	// Output: empty: false
}

// A queue is empty when every message is acked or dead. Messages that wait for a retry, or that other consumers hold,
// count too.
func ExampleQueue_Empty() {
	ctx := context.Background()
	db := memory()
	defer db.Close()
	config := chanq.Config{Spec: chanq.Spec{MaxAttempts: 3}} // 3 attempts, so 2 retries
	check(chanq.Migrate(ctx, db, "pages", config))
	pages, err := chanq.Open[string](ctx, db, "pages", chanq.Config{})
	check(err)
	_, err = pages.Send(ctx, chanq.Msg("/busy"))
	check(err)
	consumer, err := pages.Consume(ctx, chanq.ConsumerConfig{})
	check(err)
	handled := make(chan error, 1)
	go func() {
		handled <- consumer.Handle(1, func(_ context.Context, lease *chanq.Lease[string]) error {
			fmt.Println("attempt", lease.Attempt)
			return chanq.RetryAfter(10*time.Millisecond, errors.New("503"))
		})
	}()
	for range time.Tick(100 * time.Millisecond) {
		empty, err := pages.Empty(ctx)
		check(err)
		if empty {
			break
		}
	}
	consumer.Stop()
	check(<-handled)
	// Output:
	// attempt 1
	// attempt 2
	// attempt 3
}

// In an outage the buffer fills, and a send on the channel blocks. Select on your context as well.
func ExampleProducer_C() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	db := memory()
	defer db.Close()
	orders := openQueue[Order](ctx, db, "orders")
	producer, err := orders.Producer(ctx, chanq.ProducerConfig{})
	check(err)
	select {
	case producer.C() <- chanq.Msg(Order{Number: 1}):
		fmt.Println("handed over") // Close returns it if it cannot be stored
	case <-ctx.Done():
		fmt.Println("not sent")
	}
	check(producer.Close(context.WithoutCancel(ctx)))
	// Output: handed over
}

// Close returns the messages of the channel that could not be stored.
func ExampleProducer_Close() {
	ctx := context.Background()
	db := memory()
	defer db.Close()
	notes := openQueue[string](ctx, db, "notes")
	producer, err := notes.Producer(ctx, chanq.ProducerConfig{})
	check(err)
	producer.C() <- chanq.Msg("buy tea")
	producer.C() <- chanq.Msg(string(make([]byte, 2<<20))) // above Spec.MaxBody
	err = producer.Close(ctx)
	var left *chanq.UnsentError[string]
	if errors.As(err, &left) {
		for _, unsent := range left.Unsent {
			fmt.Println("not stored:", len(unsent.Message.Body), "bytes,", errors.Is(unsent.Err, chanq.ErrTooLarge))
		}
	}
	// Output: not stored: 2097152 bytes, true
}

// A loop over the channel also waits for a timer, and stops the consumer in time.
func ExampleConsumer_C() {
	ctx := context.Background()
	_, consumer, done := numbers(ctx)
	defer done()
	timer := time.After(time.Minute)
	sum := 0
	for leases := consumer.C(); leases != nil; {
		select {
		case lease, open := <-leases:
			if !open { // stopped; here because nothing is due
				leases = nil
				continue
			}
			sum += lease.Body
			check(lease.Ack())
		case <-timer:
			consumer.Stop() // closes the channel
		}
	}
	check(consumer.Shutdown(ctx))
	fmt.Println(sum)
	// Output: 6
}

// Ack does not wait for the database. Wait returns the outcome.
func ExampleDelivery_Ack() {
	ctx := context.Background()
	_, consumer, done := numbers(ctx)
	defer done()
	lease := <-consumer.C()
	check(lease.Ack()) // joins the next batch
	switch err := lease.Wait(ctx); {
	case err == nil:
		fmt.Println("acked")
	case errors.Is(err, chanq.ErrLeaseLost):
		fmt.Println("redelivered to another consumer")
	default:
		check(err)
	}
	check(consumer.Shutdown(ctx))
	// Output: acked
}

// Shutdown waits for readers that still have leases. When its context is cancelled, they are released.
func ExampleConsumer_Shutdown() {
	ctx := context.Background()
	_, consumer, done := numbers(ctx)
	defer done()
	go func() {
		for lease := range consumer.C() {
			check(lease.Ack())
		}
	}()
	drain, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	fmt.Println(consumer.Shutdown(drain)) // nil: every lease is settled, and every settle is stored
	// Output: <nil>
}

// A reminder that is due in an hour, is of no use after two, and is sent once for each order.
func ExampleMessage() {
	ctx := context.Background()
	db := memory()
	defer db.Close()
	reminders := openQueue[Order](ctx, db, "reminders")
	reminder := chanq.Message[Order]{
		Body:     Order{Number: 7},
		Type:     "payment",
		DedupKey: "payment of order 7",
		Delay:    time.Hour,
		TTL:      2 * time.Hour,
	}
	receipts, err := reminders.Send(ctx, reminder)
	check(err)
	again, err := reminders.Send(ctx, reminder)
	check(err)
	fmt.Println(again[0].Duplicate, again[0].ID == receipts[0].ID)
	// Output: true true
}

// A message that no attempt can handle goes to the dead-letter table, from where it can be redriven.
func ExampleDeadLetter() {
	ctx := context.Background()
	db := memory()
	defer db.Close()
	orders := openQueue[Order](ctx, db, "orders")
	_, err := orders.Send(ctx, chanq.Msg(Order{Number: -1}))
	check(err)
	consumer, err := orders.Consume(ctx, chanq.ConsumerConfig{StopWhenIdle: true})
	check(err)
	check(consumer.Handle(1, func(_ context.Context, lease *chanq.Lease[Order]) error {
		if lease.Body.Number < 0 {
			return chanq.DeadLetter(fmt.Errorf("no order has the number %d", lease.Body.Number))
		}
		return nil
	}))
	admin, err := chanqadmin.Open(ctx, db, "orders", chanq.Config{})
	check(err)
	dead, err := admin.List(ctx, chanqadmin.Select{State: chanqadmin.StateDead}, chanqadmin.List{})
	check(err)
	fmt.Println(dead.Entries[0].Cause, "-", dead.Entries[0].LastError)
	// Output: rejected - no order has the number -1
}

// The database stores the Spec. A program that leaves its fields zero adopts it.
func ExampleSpec() {
	ctx := context.Background()
	db := memory()
	defer db.Close()
	spec := chanq.Spec{Kind: chanq.KindOrdered, MaxAttempts: 5, RetainDead: 30 * 24 * time.Hour}
	check(chanq.Migrate(ctx, db, "payments", chanq.Config{Spec: spec}))
	payments, err := chanq.Open[Order](ctx, db, "payments", chanq.Config{})
	check(err)
	fmt.Println(payments.Spec().Kind, payments.Spec().MaxAttempts)
	_, err = chanq.Open[Order](ctx, db, "payments", chanq.Config{Spec: chanq.Spec{MaxAttempts: 10}})
	fmt.Println(errors.Is(err, chanq.ErrSpec))
	// Output:
	// ordered 5
	// true
}
