package chanq_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/embedded"
)

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
