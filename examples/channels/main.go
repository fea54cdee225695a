// Command channels answers letters for at most a minute, with its own loops over channels:
//
//	orders.C  ─┐                 ┌─ worker ─┐
//	           ├─ select, merge ─┼─ worker ─┼─▶ queue letters
//	returns.C ─┘        ▲        └─ worker ─┘
//	                  timer
//
// Stop or kill it at any moment and start it again: each order and each return gets one letter, because a letter has the ID of the
// message that it answers. Messages that a killed process had claimed are answered by a run that starts a minute later.
//
//	go run ./examples/channels
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/embedded"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	db, err := embedded.Open("post.db")
	if err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(run(ctx, db, time.Minute, "tea", "cake"), db.Close()); err != nil {
		log.Fatal(err)
	}
}

// run sends an order and a return of each item, and answers what is in the queues until nothing is due, ctx is cancelled, or the limit is over.
func run(ctx context.Context, db *sql.DB, limit time.Duration, items ...string) error {
	orders, err := open(ctx, db, "orders")
	if err != nil {
		return err
	}
	returns, err := open(ctx, db, "returns")
	if err != nil {
		return err
	}
	letters, err := open(ctx, db, "letters")
	if err != nil {
		return err
	}
	if err := errors.Join(feed(ctx, orders, "order of ", items), feed(ctx, returns, "return of ", items)); err != nil {
		return err
	}
	return answerAll(ctx, orders, returns, letters, limit)
}

func open(ctx context.Context, db *sql.DB, name string) (*chanq.Queue[string], error) {
	config := chanq.Config{Hooks: chanq.LogHooks(nil, slog.LevelWarn)}
	if err := chanq.Migrate(ctx, db, name, config); err != nil {
		return nil, err
	}
	return chanq.Open[string](ctx, db, name, config)
}

// feed sends on the channel of a producer, which stores many messages with one statement.
func feed(ctx context.Context, queue *chanq.Queue[string], prefix string, items []string) error {
	producer, err := queue.Producer(ctx, chanq.ProducerConfig{})
	if err != nil {
		return err
	}
	for _, item := range items {
		producer.C() <- chanq.Msg(prefix + item)
	}
	return producer.Close(ctx) // nil: all are stored
}

// answerAll merges the channels of two consumers into one, which a bounded pool of workers reads.
func answerAll(ctx context.Context, orders, returns, letters *chanq.Queue[string], limit time.Duration) error {
	untilIdle := chanq.ConsumerConfig{StopWhenIdle: true}
	first, err := orders.Consume(ctx, untilIdle)
	if err != nil {
		return err
	}
	second, err := returns.Consume(ctx, untilIdle)
	if err != nil {
		return errors.Join(err, first.Shutdown(ctx))
	}
	producer, err := letters.Producer(context.WithoutCancel(ctx), chanq.ProducerConfig{})
	if err != nil {
		return errors.Join(err, first.Shutdown(ctx), second.Shutdown(ctx))
	}

	leases := make(chan *chanq.Lease[string]) // unbuffered: a lease waits in its consumer, which extends it
	var workers sync.WaitGroup
	for range 3 {
		workers.Go(func() {
			for lease := range leases {
				answer(lease, producer)
			}
		})
	}
	workers.Go(func() {
		merge(leases, first, second, limit)
		close(leases)
	})
	<-first.Done() // ctx is cancelled, the limit is over, or nothing is due
	<-second.Done()
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	err = errors.Join(first.Shutdown(bound), second.Shutdown(bound)) // the workers still run: after 10 s it cancels lease.Context()
	workers.Wait()
	return errors.Join(err, producer.Close(bound))
}

// merge passes on the leases of both consumers until their channels are closed. When the time is over it stops them.
func merge(leases chan<- *chanq.Lease[string], first, second *chanq.Consumer[string], limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for a, b := first.C(), second.C(); a != nil || b != nil; {
		select {
		case lease, open := <-a:
			if !open {
				a = nil // this case is never ready again
				continue
			}
			leases <- lease
		case lease, open := <-b:
			if !open {
				b = nil
				continue
			}
			leases <- lease
		case <-timer.C:
			first.Stop() // closes its channel
			second.Stop()
		}
	}
}

// answer stores a letter, and acks its message only then. A crash between the two repeats the letter with the same ID, and while the
// first one is in the queue it is not stored again.
func answer(lease *chanq.Lease[string], letters *chanq.Producer[string]) {
	letter := chanq.Message[string]{ID: lease.ID, Body: "Thank you for your " + lease.Body + "."}
	_, err := letters.Send(lease.Context(), letter) // the sends of all workers share statements
	if err == nil {
		fmt.Println(letter.Body)
		err = lease.Ack()
	} else {
		err = lease.Nack(err) // redelivered after ConsumerConfig.Backoff
	}
	if err != nil {
		log.Print(err) // the lease is lost: the message is redelivered
	}
}
