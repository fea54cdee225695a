// Command outbox is a web shop. It stores an order, and the messages about it for two queues, in one transaction. Each order has its
// receipt and its parcel, and neither is sent for an order that was not stored, whenever the process is killed. The client chooses the
// ID of its order, and repeats the request until it receives a response. The order is stored once. A worker of the same process prints the
// receipts. A signal stops the server first and then the worker. (Another program would ship the parcels.)
//
//	go run ./examples/outbox
//	curl -X PUT 'http://127.0.0.1:8080/orders/7c1f?customer=ada'
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/embedded"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	db, err := embedded.Open("outbox.db")
	if err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(run(ctx, db, "127.0.0.1:8080"), db.Close()); err != nil {
		log.Fatal(err)
	}
}

// run serves requests and prints receipts until ctx is cancelled.
func run(ctx context.Context, db *sql.DB, address string) error {
	s, err := open(ctx, db)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /orders/{id}", s.order)
	server, served := &http.Server{Handler: mux}, make(chan error, 1)
	go func() { served <- server.Serve(listener) }()

	consumer, err := s.receipts.Consume(context.Background(), chanq.ConsumerConfig{DrainFor: 17 * time.Second}) // not ctx: the server stops first
	if err != nil {
		return errors.Join(err, server.Close())
	}
	worked := make(chan error, 1)
	go func() { worked <- consumer.Handle(8, receipt) }()

	select {
	case <-ctx.Done(): // a signal
	case err = <-served: // the server has failed
	case <-consumer.Done(): // its queue is missing, for example: Handle returns the error
	}
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), 4*time.Second) // 27 s in all
	defer cancel()
	err = errors.Join(err, server.Shutdown(bound)) // requests that have begun may finish, and send
	consumer.Stop()                                // then no more claims
	return errors.Join(err, <-worked)              // nil: all handlers have returned, and their results are stored
}

func receipt(_ context.Context, lease *chanq.Lease[order]) error {
	log.Printf("receipt of order %s for %s", lease.Body.ID, lease.Body.Customer)
	return nil
}

// order is a message of both queues.
type order struct{ ID, Customer string }

type shop struct {
	db                *sql.DB
	receipts, parcels *chanq.Queue[order]
}

func open(ctx context.Context, db *sql.DB) (s *shop, err error) {
	s = &shop{db: db}
	if s.receipts, err = queue(ctx, db, "receipts"); err != nil {
		return nil, err
	}
	if s.parcels, err = queue(ctx, db, "parcels"); err != nil {
		return nil, err
	}
	_, err = db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, customer TEXT NOT NULL)")
	return s, err
}

func queue(ctx context.Context, db *sql.DB, name string) (*chanq.Queue[order], error) {
	config := chanq.Config{Hooks: chanq.LogHooks(nil, slog.LevelWarn)}
	if err := chanq.Migrate(ctx, db, name, config); err != nil {
		return nil, err
	}
	return chanq.Open[order](ctx, db, name, config)
}

func (s *shop) order(w http.ResponseWriter, r *http.Request) {
	o := order{r.PathValue("id"), r.FormValue("customer")}
	if o.Customer == "" {
		http.Error(w, "an order needs a customer", http.StatusUnprocessableEntity)
		return
	}
	err := chanq.InTx(r.Context(), s.db, func(ctx context.Context, tx *sql.Tx) error {
		added, err := tx.ExecContext(ctx, "INSERT INTO orders (id, customer) VALUES (?, ?) ON CONFLICT (id) DO NOTHING", o.ID, o.Customer)
		if err != nil {
			return err
		}
		if n, err := added.RowsAffected(); err != nil || n == 0 {
			return err // nil: an earlier request has stored the order and sent its messages
		}
		if _, err := s.receipts.SendTx(ctx, tx, chanq.Msg(o)); err != nil {
			return err
		}
		_, err = s.parcels.SendTx(ctx, tx, chanq.Msg(o))
		return err // nil: commit, and wake the consumers of both queues
	})
	if err != nil { // after an error of the commit the order might be stored
		log.Printf("order %q: %v", o.ID, err)
		http.Error(w, "please repeat the request", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintf(w, "order %s\n", o.ID)
}
