// Command outbox is a web shop. It stores an order, and the messages about it for two queues, in one transaction: each order has its
// receipt and its parcel, and neither is sent for an order that was not stored, whenever the process is killed.
//
//	go run ./examples/outbox
//	curl -X POST 'http://127.0.0.1:8080/orders?customer=ada'
package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"net/http"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/embedded"
)

func main() {
	db, err := embedded.Open("outbox.db")
	if err != nil {
		log.Fatal(err)
	}
	s, err := open(context.Background(), db)
	if err != nil {
		log.Fatal(err)
	}
	http.HandleFunc("POST /orders", s.order)
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", nil))
}

// order is a message of both queues.
type order struct {
	ID       int64
	Customer string
}

type shop struct {
	db                *sql.DB
	receipts, parcels *chanq.Queue[order]
}

func open(ctx context.Context, db *sql.DB) (*shop, error) {
	_, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, customer TEXT NOT NULL CHECK (customer <> ''))")
	if err != nil {
		return nil, err
	}
	s := &shop{db: db}
	if s.receipts, err = queue(ctx, db, "receipts"); err != nil {
		return nil, err
	}
	s.parcels, err = queue(ctx, db, "parcels")
	return s, err
}

func queue(ctx context.Context, db *sql.DB, name string) (*chanq.Queue[order], error) {
	if err := chanq.Migrate(ctx, db, name, chanq.Config{}); err != nil {
		return nil, err
	}
	return chanq.Open[order](ctx, db, name, chanq.Config{})
}

func (s *shop) order(w http.ResponseWriter, r *http.Request) {
	o := order{Customer: r.URL.Query().Get("customer")}
	err := chanq.InTx(r.Context(), s.db, func(ctx context.Context, tx *sql.Tx) error {
		if err := tx.QueryRowContext(ctx, "INSERT INTO orders (customer) VALUES (?) RETURNING id", o.Customer).Scan(&o.ID); err != nil {
			return err
		}
		if _, err := s.receipts.SendTx(ctx, tx, chanq.Msg(o)); err != nil {
			return err
		}
		_, err := s.parcels.SendTx(ctx, tx, chanq.Msg(o))
		return err // nil: commit, and wake the consumers of both queues
	})
	if err != nil {
		http.Error(w, "the order was not stored: "+err.Error(), http.StatusUnprocessableEntity)
		return
	}
	fmt.Fprintf(w, "order %d\n", o.ID)
}
