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
	s.receipts.Wake() // after the commit, or the consumer would find nothing yet
	fmt.Fprintf(w, "order %d\n", id)
}

func (s *shop) store(ctx context.Context, customer string) (id int64, err error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback() // does nothing after Commit
	if err := tx.QueryRowContext(ctx, "INSERT INTO orders (customer) VALUES (?) RETURNING id", customer).Scan(&id); err != nil {
		return 0, err
	}
	if _, err := s.receipts.SendTx(ctx, tx, chanq.Message[receipt]{Body: receipt{id, customer}}); err != nil {
		return 0, err
	}
	return id, tx.Commit()
}

// mail records the mail, which is what mailing means here, and acks the message.
func (s *shop) mail(ctx context.Context, l *chanq.Lease[receipt]) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err // the message is nacked
	}
	defer tx.Rollback() // before Handle nacks, if this fails
	text := fmt.Sprintf("Dear %s, thank you for order %d.", l.Body.Customer, l.Body.Order)
	if _, err := tx.ExecContext(ctx, "INSERT INTO mails (order_id, text) VALUES (?, ?)", l.Body.Order, text); err != nil {
		return err
	}
	if err := l.AckTx(ctx, tx); err != nil {
		return err // chanq.ErrLeaseLost: another process mails it
	}
	return tx.Commit()
}
