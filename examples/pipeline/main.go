// Command pipeline counts the words of text files, in two stages:
//
//	files ──Pipe: read and count──▶ counts ──Receive: add up, AckTx──▶ table words
//
// Kill it at any moment and start it again: it goes on, and each file is counted
// once.
//
//	go run ./examples/pipeline *.md docs/*.md
package main

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/embedded"
)

func main() {
	file := flag.String("db", "pipeline.db", "SQLite file")
	flag.Parse()
	db, err := embedded.Open(*file)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, db, flag.Args()); err != nil {
		log.Print(err)
		return
	}
	var n, sum int
	if err := db.QueryRow("SELECT COUNT(*), COALESCE(SUM(n), 0) FROM words").Scan(&n, &sum); err != nil {
		log.Print(err)
		return
	}
	fmt.Printf("%d words, %d different\n", sum, n)
}

// run counts the files, and those that an earlier run has left, until ctx ends
// or all are done.
func run(ctx context.Context, db *sql.DB, paths []string) error {
	_, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS words (word TEXT PRIMARY KEY, n INTEGER NOT NULL)")
	if err != nil {
		return err
	}
	files, err := open[string](ctx, db, "files")
	if err != nil {
		return err
	}
	counted, err := open[counts](ctx, db, "counts")
	if err != nil {
		return err
	}
	sender, err := files.Producer(chanq.ProducerConfig{})
	if err != nil {
		return err
	}
	for _, path := range paths { // one that waits already is not sent twice
		sender.C() <- chanq.Message[string]{Body: path, DedupKey: path}
	}
	if err := sender.Close(ctx); err != nil {
		return err
	}

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	reading, err := files.Consume(ctx, chanq.ConsumerConfig{})
	if err != nil {
		return err
	}
	adding, err := counted.Consume(ctx, chanq.ConsumerConfig{})
	if err != nil {
		return err
	}
	var stages errgroup.Group
	stages.Go(func() error { return chanq.Pipe(reading, counted, 4, count) })
	stages.Go(func() error { return adding.HandleBatches(1, 100, 20*time.Millisecond, add(db)) })
	// Pipe moves a message in one transaction, so it is always in one of the two.
	for ctx.Err() == nil && !empty(ctx, files, counted) {
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
	// Stop every stage, and wait for what it has in hand, up to ConsumerConfig.DrainFor. What lies between two stages is in its
	// table, so their order does not matter.
	stop()
	return stages.Wait()
}
