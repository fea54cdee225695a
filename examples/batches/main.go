// Command batches stores measurements, up to 500 in one transaction with the acks of their messages: each is stored once, whenever the
// process is killed. One that the table refuses fails alone, and is tried again later.
//
//	seq -1 1000 | go run ./examples/batches
package main

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"io"
	"log"
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
	defer db.Close()
	if err := run(ctx, db, os.Stdin); err != nil {
		log.Print(err)
	}
}

// run sends what it reads, and stores what is in the queue.
func run(ctx context.Context, db *sql.DB, in io.Reader) error {
	_, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS measurements (value REAL NOT NULL CHECK (value >= 0))")
	if err != nil {
		return err
	}
	if err := chanq.Migrate(ctx, db, "measurements", chanq.Config{}); err != nil {
		return err
	}
	measurements, err := chanq.Open[float64](ctx, db, "measurements", chanq.Config{})
	if err != nil {
		return err
	}
	if err := send(ctx, measurements, in); err != nil {
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
					return err // rolled back; then each message of the batch is handed over alone
				}
			}
			return chanq.AckTx(ctx, tx, batch...)
		})
	})
}

// send stores many messages with one statement.
func send(ctx context.Context, measurements *chanq.Queue[float64], in io.Reader) error {
	producer, err := measurements.Producer(chanq.ProducerConfig{})
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	for err == nil && lines.Scan() {
		var value float64
		if value, err = strconv.ParseFloat(lines.Text(), 64); err == nil {
			producer.C() <- chanq.Msg(value)
		}
	}
	return errors.Join(err, lines.Err(), producer.Close(ctx)) // all that was read is stored
}
