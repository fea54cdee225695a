// Command pipeline counts the words of text files, in two stages:
//
//	files ──Pipe: read and count──▶ counts ──Handle: add up──▶ table words
//
// Stop it at any moment and start it again without files: it goes on, and each file is counted once. The files that a
// killed process was reading are counted by a run that begins 30 s later, when their leases have expired.
//
//	go run ./examples/pipeline *.md docs/*.md
package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"
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
	defer db.Close()
	if err := run(ctx, db, os.Args[1:]); err != nil {
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

// run counts the files, and those that an earlier run has left, until ctx ends or all are done.
func run(ctx context.Context, db *sql.DB, paths []string) error {
	_, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS words (word TEXT PRIMARY KEY, n INTEGER NOT NULL)")
	if err != nil {
		return err
	}
	files, err := open[string](ctx, db, "files")
	if err != nil {
		return err
	}
	counts, err := open[map[string]int](ctx, db, "counts")
	if err != nil {
		return err
	}
	var ms []chanq.Message[string]
	for _, path := range paths {
		ms = append(ms, chanq.Message[string]{Body: path, DedupKey: path}) // one that waits already is not sent again
	}
	if _, err := files.Send(ctx, ms...); err != nil {
		return err
	}

	stages, ctx := errgroup.WithContext(ctx) // the error of a stage stops the other
	both := chanq.ConsumerConfig{StopWhenIdle: true, IdleGroup: chanq.NewIdleGroup(2)}
	reading, err := files.Consume(ctx, both)
	if err != nil {
		return err
	}
	adding, err := counts.Consume(ctx, both)
	if err != nil {
		return err
	}
	stages.Go(func() error { return chanq.Pipe(reading, counts, 4, count) })
	stages.Go(func() error { return adding.Handle(1, add(db)) })
	return stages.Wait() // what lies between the stages is in its table, so the order of their ends does not matter
}

func open[T any](ctx context.Context, db *sql.DB, name string) (*chanq.Queue[T], error) {
	if err := chanq.Migrate(ctx, db, name, chanq.Config{}); err != nil {
		return nil, err
	}
	return chanq.Open[T](ctx, db, name, chanq.Config{})
}

// count is the first stage. It runs in no transaction; Pipe then replaces its input by its output in one.
func count(_ context.Context, lease *chanq.Lease[string]) ([]chanq.Message[map[string]int], error) {
	text, err := os.ReadFile(lease.Body)
	if err != nil {
		return nil, chanq.DeadLetter(err)
	}
	words := map[string]int{}
	for word := range strings.FieldsSeq(string(text)) {
		words[word]++
	}
	return []chanq.Message[map[string]int]{chanq.Msg(words)}, nil
}

// add is the second stage: it adds the words of a file to the table and acks them, together.
func add(db *sql.DB) chanq.Handler[map[string]int] {
	const text = "INSERT INTO words (word, n) VALUES (?, ?) ON CONFLICT (word) DO UPDATE SET n = n + excluded.n"
	return func(ctx context.Context, lease *chanq.Lease[map[string]int]) error {
		return chanq.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
			for word, n := range lease.Body {
				if _, err := tx.ExecContext(ctx, text, word, n); err != nil {
					return err
				}
			}
			return lease.AckTx(ctx, tx)
		})
	}
}
