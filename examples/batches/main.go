// Command batches stores measurements, up to 500 in one transaction with the acks of their messages. Each is stored once, whenever the
// process is killed. A measurement that the table rejects fails alone, and is tried again by a later run.
//
//	go run ./examples/batches $(seq -1 1000)
package main

import (
	"context"
	"database/sql"
	"errors"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/embedded"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	db, err := embedded.Open("measurements.db")
	if err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(run(ctx, db, os.Args[1:]), db.Close()); err != nil {
		log.Fatal(err)
	}
}

// run sends the values, and stores the messages of the queue, until ctx is cancelled or nothing is due.
func run(ctx context.Context, db *sql.DB, values []string) error {
	config := chanq.Config{Hooks: chanq.LogHooks(nil, slog.LevelWarn)}
	if err := chanq.Migrate(ctx, db, "measurements", config); err != nil {
		return err
	}
	_, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS measurements (value REAL NOT NULL CHECK (value >= 0))")
	if err != nil {
		return err
	}
	measurements, err := chanq.Open[float64](ctx, db, "measurements", config)
	if err != nil {
		return err
	}
	var ms []chanq.Message[float64]
	for _, text := range values {
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return err
		}
		ms = append(ms, chanq.Msg(value))
	}
	if _, err := measurements.Send(ctx, ms...); err != nil { // all of them, or none
		return err
	}
	consumer, err := measurements.Consume(ctx, chanq.ConsumerConfig{StopWhenIdle: true})
	if err != nil {
		return err
	}
	return consumer.HandleBatches(2, 500, 20*time.Millisecond, func(ctx context.Context, batch []*chanq.Lease[float64]) error {
		return chanq.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
			for _, lease := range batch {
				if _, err := tx.ExecContext(ctx, "INSERT INTO measurements (value) VALUES (?)", lease.Body); err != nil {
					return err // rolled back; then each message of the batch is handled alone
				}
			}
			return chanq.AckTx(ctx, tx, batch...)
		})
	})
}
