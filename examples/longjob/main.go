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
	"strconv"
	"syscall"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqjobs"
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
	if err := chanqjobs.Migrate(ctx, db, config); err != nil { // the table of Save
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
		reporter := chanqjobs.ReporterOf(jobs, lease)
		state, err := reporter.Saved(ctx)
		if err != nil {
			return err
		}
		page, _ := strconv.Atoi(string(state)) // 0 at first
		for ; page < lease.Body; page++ {
			select {
			case <-lease.Stopping():
				return lease.Release() // no failed attempt: the next process goes on
			default:
			}
			if err := read(ctx, page); err != nil {
				return err
			}
			if err := reporter.Save(ctx, []byte(strconv.Itoa(page+1))); err != nil {
				return err // ErrLeaseLost: another process has the job
			}
		}
		return nil
	})
}
