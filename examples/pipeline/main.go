// Command pipeline counts the words of text files, in two stages:
//
//	files ──Pipe: read and count──▶ counts ──Handle: store──▶ table words
//
// Stop it at any moment and start it again without files: it continues, and each file is counted once. Messages that
// a killed process had claimed are handled by a run that starts a minute later, when their leases have expired.
//
//	go run ./examples/pipeline *.md docs/*.md
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/embedded"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	db, err := embedded.Open("pipeline.db")
	if err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(run(ctx, db, os.Args[1:]), db.Close()); err != nil {
		log.Fatal(err)
	}
}

// counted is a message between the stages: the number of words of a file.
type counted struct {
	Path  string
	Words int
}

// run counts the files, and those left by an earlier run, until ctx is cancelled or nothing is due.
func run(ctx context.Context, db *sql.DB, paths []string) error {
	files, err := open[string](ctx, db, "files")
	if err != nil {
		return err
	}
	counts, err := open[counted](ctx, db, "counts")
	if err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS words (path TEXT NOT NULL, n INTEGER NOT NULL)"); err != nil {
		return err
	}
	var ms []chanq.Message[string]
	for _, path := range paths {
		ms = append(ms, chanq.Message[string]{Body: path, DedupKey: path}) // a file that is already waiting is not sent again
	}
	if _, err := files.Send(ctx, ms...); err != nil {
		return err
	}

	stages, ctx := errgroup.WithContext(ctx) // the error of a stage stops the other
	counting, counted := context.WithCancel(ctx)
	stages.Go(func() error {
		defer counted()
		consumer, err := files.Consume(ctx, chanq.ConsumerConfig{StopWhenIdle: true})
		if err != nil {
			return err
		}
		return chanq.Pipe(consumer, counts, 4, count)
	})
	stages.Go(func() error {
		if err := storeAll(counting, db, counts, chanq.ConsumerConfig{}); err != nil {
			return err
		}
		return storeAll(ctx, db, counts, chanq.ConsumerConfig{StopWhenIdle: true}) // what is left
	})
	return stages.Wait() // the messages between the stages are in the database, so the stages may stop in any order
}

// storeAll is the second stage, until ctx is cancelled or the consumer stops.
func storeAll(ctx context.Context, db *sql.DB, counts *chanq.Queue[counted], config chanq.ConsumerConfig) error {
	consumer, err := counts.Consume(ctx, config)
	if err != nil {
		return err
	}
	return consumer.Handle(1, func(ctx context.Context, lease *chanq.Lease[counted]) error { return store(ctx, db, lease) })
}

func open[T any](ctx context.Context, db *sql.DB, name string) (*chanq.Queue[T], error) {
	config := chanq.Config{Hooks: chanq.LogHooks(nil, slog.LevelWarn)}
	if err := chanq.Migrate(ctx, db, name, config); err != nil {
		return nil, err
	}
	return chanq.Open[T](ctx, db, name, config)
}

// count is the first stage. It runs outside a transaction. Pipe then replaces its input with its output in one
// transaction.
func count(_ context.Context, lease *chanq.Lease[string]) ([]chanq.Message[counted], error) {
	text, err := os.ReadFile(lease.Body)
	if err != nil {
		return nil, err // tried again by a later run
	}
	return []chanq.Message[counted]{chanq.Msg(counted{lease.Body, len(strings.Fields(string(text)))})}, nil
}

// store stores the count of a file and acks its message in one transaction.
func store(ctx context.Context, db *sql.DB, lease *chanq.Lease[counted]) error {
	err := chanq.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO words (path, n) VALUES (?, ?)", lease.Body.Path, lease.Body.Words); err != nil {
			return err
		}
		return lease.AckTx(ctx, tx)
	})
	if err == nil {
		fmt.Println(lease.Body.Words, lease.Body.Path)
	}
	return err
}
