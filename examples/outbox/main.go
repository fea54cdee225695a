// Command outbox is a shop that mails a receipt for each order. The order and
// the message about it are stored in one transaction, and so are the mail and
// the ack of that message: no receipt is lost, and none is recorded twice,
// whenever it is killed.
//
//	go run ./examples/outbox
//	curl -X POST 'http://127.0.0.1:8080/orders?customer=ada'
package main

import (
	"context"
	"errors"
	"flag"
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
	address := flag.String("listen", "127.0.0.1:8080", "address of the shop")
	file := flag.String("db", "outbox.db", "SQLite file")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	listener, err := net.Listen("tcp", *address)
	if err == nil {
		err = run(ctx, listener, *file)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// run serves until ctx ends, and then finishes what is in hand.
func run(ctx context.Context, listener net.Listener, file string) (err error) {
	db, err := embedded.Open(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	const tables = `CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, customer TEXT NOT NULL CHECK (customer <> ''));
CREATE TABLE IF NOT EXISTS mails (order_id INTEGER PRIMARY KEY, text TEXT NOT NULL)`
	if _, err := db.ExecContext(ctx, tables); err != nil {
		return err
	}
	if err := chanq.Migrate(ctx, db, "receipts", chanq.Config{}); err != nil {
		return err
	}
	s := &shop{db: db}
	if s.receipts, err = chanq.Open[receipt](ctx, db, "receipts", chanq.Config{Hooks: chanq.LogHooks(nil, slog.LevelWarn)}); err != nil {
		return err
	}
	consumer, err := s.receipts.Consume(ctx, chanq.ConsumerConfig{})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", s.order)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() {
		served <- server.Serve(listener)
		consumer.Stop() // when it could not serve
	}()

	err = consumer.Handle(4, s.mail) // until ctx ends, and then what is in hand for 20 s
	bound, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	err = errors.Join(err, server.Shutdown(bound))
	if e := <-served; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return err
}
