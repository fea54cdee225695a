// Command longjob works on one message for two hours. On SIGTERM it stops after the current page, and the next process continues with the
// page after it.
//
//	go run ./examples/longjob
//	go run ./cmd/chanq send --db longjob.db jobs 7200   # a job of 7200 pages
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
	"syscall"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/embedded"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	db, err := embedded.Open("longjob.db")
	if err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(run(ctx, db, read), db.Close()); err != nil {
		log.Fatal(err)
	}
}

// read takes 1 s, which is less than ConsumerConfig.DrainFor, and returns early if ctx is cancelled.
func read(ctx context.Context, page int) error {
	fmt.Println("page", page)
	select {
	case <-time.After(time.Second):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run works on jobs, whose bodies are their numbers of pages, until ctx is cancelled.
func run(ctx context.Context, db *sql.DB, read func(ctx context.Context, page int) error) error {
	config := chanq.Config{Hooks: chanq.LogHooks(nil, slog.LevelWarn)}
	if err := chanq.Migrate(ctx, db, "jobs", config); err != nil {
		return err
	}
	_, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS progress (job TEXT PRIMARY KEY, pages INTEGER NOT NULL, fence INTEGER NOT NULL)")
	if err != nil {
		return err
	}
	jobs, err := chanq.Open[int](ctx, db, "jobs", config)
	if err != nil {
		return err
	}
	consumer, err := jobs.Consume(ctx, chanq.ConsumerConfig{
		Prefetch:  1,             // one job at a time; one more waits in this process
		MaxExtend: 3 * time.Hour, // above the longest job: a lease is not extended beyond it
	})
	if err != nil {
		return err
	}
	return consumer.Handle(1, func(ctx context.Context, lease *chanq.Lease[int]) error {
		// The fence is higher than those of earlier holders. After this statement, an earlier holder that still runs because it has not
		// noticed the loss of its lease cannot change the progress.
		const take = `INSERT INTO progress (job, pages, fence) VALUES (?, 0, ?)
ON CONFLICT (job) DO UPDATE SET fence = excluded.fence WHERE excluded.fence >= progress.fence RETURNING pages`
		var page int
		if err := db.QueryRowContext(ctx, take, lease.ID, lease.Fence).Scan(&page); err != nil {
			return err // sql.ErrNoRows: this lease is lost, and a later holder has started
		}
		for ; page < lease.Body; page++ {
			select {
			case <-lease.Stopping():
				return lease.Release() // no failed attempt: the next process goes on
			default:
			}
			if err := read(ctx, page); err != nil {
				return err
			}
			const done = "UPDATE progress SET pages = ? WHERE job = ? AND fence = ?"
			if _, err := db.ExecContext(ctx, done, page+1, lease.ID, lease.Fence); err != nil {
				return err
			}
		}
		return chanq.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, "DELETE FROM progress WHERE job = ?", lease.ID); err != nil {
				return err
			}
			return lease.AckTx(ctx, tx) // rolls back if another process holds the job
		})
	})
}
