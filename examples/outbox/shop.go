package main

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"

	"github.com/chanq/chanq"
)

// receipt is a message: a receipt is to be mailed.
type receipt struct {
	Order    int64
	Customer string
}

type shop struct {
	db       *sql.DB
	receipts *chanq.Queue[receipt]
}

// order stores an order and the message about it.
func (s *shop) order(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	id, err := s.store(ctx, r.URL.Query().Get("customer"))
	if err != nil {
		http.Error(w, "the order was not stored: "+err.Error(), http.StatusUnprocessableEntity)
		return
	}
	fmt.Fprintf(w, "order %d\n", id)
}

func (s *shop) store(ctx context.Context, customer string) (id int64, err error) {
	err = chanq.InTx(ctx, s.db, func(ctx context.Context, tx *sql.Tx) error {
		if err := tx.QueryRowContext(ctx, "INSERT INTO orders (customer) VALUES (?) RETURNING id", customer).Scan(&id); err != nil {
			return err
		}
		_, err := s.receipts.SendTx(ctx, tx, chanq.Msg(receipt{id, customer}))
		return err
	})
	return id, err
}

// mail records the mail, which is what mailing means here, and acks the message.
func (s *shop) mail(ctx context.Context, l *chanq.Lease[receipt]) error {
	text := fmt.Sprintf("Dear %s, thank you for order %d.", l.Body.Customer, l.Body.Order)
	return chanq.InTx(ctx, s.db, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO mails (order_id, text) VALUES (?, ?)", l.Body.Order, text); err != nil {
			return err // rolled back, and then the message is nacked
		}
		return l.AckTx(ctx, tx) // chanq.ErrLeaseLost: another process mails it
	})
}
