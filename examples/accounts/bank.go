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
	var balance int
	const add = `INSERT INTO accounts VALUES (?, ?) ON CONFLICT DO UPDATE SET balance = balance + excluded.balance RETURNING balance`
	err := chanq.InTx(ctx, b.db, func(ctx context.Context, tx *sql.Tx) error {
		if err := tx.QueryRowContext(ctx, add, m.Customer, m.Amount).Scan(&balance); err != nil {
			return err
		}
		if balance < 0 {
			return chanq.DeadLetter(fmt.Errorf("%s has only %d", m.Customer, balance-m.Amount))
		}
		return l.AckTx(ctx, tx) // chanq.ErrLeaseLost: another process books it
	})
	if err != nil {
		return err // rolled back; the message is nacked, and its customer's others wait
	}
	fmt.Fprintf(b.out, "%s %+d = %d\n", m.Customer, m.Amount, balance)
	return nil
}
