// Command longjob works on one message for two hours. When it gets SIGTERM it ends after the current page, and the next process goes on
// with the page after it.
//
//	go run ./examples/longjob 720   # sends a job of 720 pages
//	go run ./examples/longjob       # goes on
package main

import (
	"context"
	"database/sql"
	"fmt"
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
	db, err := embedded.Open("longjob.db")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	pages := 0
	if len(os.Args) > 1 {
		pages, err = strconv.Atoi(os.Args[1])
	}
	if err == nil {
		err = run(ctx, db, pages, read)
	}
	if err != nil {
		log.Print(err)
	}
}

// read takes 10 s, which is less than ConsumerConfig.DrainFor, and ends early if ctx does.
func read(ctx context.Context, page int) error {
	fmt.Println("page", page)
	select {
	case <-time.After(10 * time.Second):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run sends a job of so many pages, and works until ctx ends.
func run(ctx context.Context, db *sql.DB, pages int, read func(ctx context.Context, page int) error) error {
	_, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS progress (job TEXT PRIMARY KEY, pages INTEGER NOT NULL)")
	if err != nil {
		return err
	}
	if err := chanq.Migrate(ctx, db, "jobs", chanq.Config{}); err != nil {
		return err
	}
	jobs, err := chanq.Open[int](ctx, db, "jobs", chanq.Config{})
	if err != nil {
		return err
	}
	if pages > 0 {
		if _, err := jobs.Send(ctx, chanq.Msg(pages)); err != nil {
			return err
		}
	}
	consumer, err := jobs.Consume(ctx, chanq.ConsumerConfig{
		Prefetch:  1,             // the other jobs are for other processes
		MaxExtend: 3 * time.Hour, // the longest job: its lease is extended for so long, and no longer
	})
	if err != nil {
		return err
	}
	return consumer.Handle(1, func(ctx context.Context, lease *chanq.Lease[int]) error {
		var page int
		if err := db.QueryRowContext(ctx, "SELECT COALESCE(MAX(pages), 0) FROM progress WHERE job = ?", lease.ID).Scan(&page); err != nil {
			return err
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
			const done = "INSERT INTO progress (job, pages) VALUES (?, ?) ON CONFLICT (job) DO UPDATE SET pages = excluded.pages"
			if _, err := db.ExecContext(ctx, done, lease.ID, page+1); err != nil {
				return err
			}
		}
		return nil
	})
}
