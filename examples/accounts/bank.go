package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"time"

	"github.com/chanq/chanq"
)

// movement is a message: so much is to be added to a customer's account.
type movement struct {
	Customer string
	Amount   int
}

type bank struct {
	db    *sql.DB
	out   io.Writer
	allow func(movement) error
}

// later is when a movement that could not be booked is tried again. Those of the same customer
// that came after it wait for it, and those of others do not.
const later = 200 * time.Millisecond

func (b *bank) book(ctx context.Context, l *chanq.Lease[movement]) error {
	m := l.Body
	if err := b.allow(m); err != nil {
		return chanq.RetryAfter(later, err)
	}
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return err // the message is nacked, and its customer's others wait
	}
	defer tx.Rollback() // before Handle settles, if this fails
	var balance int
	const add = `INSERT INTO accounts VALUES (?, ?) ON CONFLICT DO UPDATE SET balance = balance + excluded.balance RETURNING balance`
	if err := tx.QueryRowContext(ctx, add, m.Customer, m.Amount).Scan(&balance); err != nil {
		return err
	}
	if balance < 0 {
		return chanq.DeadLetter(fmt.Errorf("%s has only %d", m.Customer, balance-m.Amount))
	}
	if err := l.AckTx(ctx, tx); err != nil {
		return err // chanq.ErrLeaseLost: another process books it
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	fmt.Fprintf(b.out, "%s %+d = %d\n", m.Customer, m.Amount, balance)
	return nil
}
