// Command cron keeps reminders. It is no service: add stores one, and run, which
// cron starts every few minutes, prints those that are due and ends. Two that run
// at once do not print the same.
//
//	go run ./examples/cron add 10m 'water the plants'
//	go run ./examples/cron run
package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/embedded"
)

func main() {
	db, err := embedded.Open("reminders.db")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := command(context.Background(), db, os.Stdout, os.Args[1:]); err != nil {
		log.Print(err)
	}
}

func command(ctx context.Context, db *sql.DB, out io.Writer, args []string) error {
	if err := chanq.Migrate(ctx, db, "reminders", chanq.Config{}); err != nil {
		return err
	}
	reminders, err := chanq.Open[string](ctx, db, "reminders", chanq.Config{})
	if err != nil {
		return err
	}
	switch {
	case len(args) == 3 && args[0] == "add":
		delay, err := time.ParseDuration(args[1])
		if err != nil {
			return err
		}
		return add(ctx, reminders, delay, args[2])
	case len(args) == 1 && args[0] == "run":
		return remind(ctx, reminders, out)
	}
	return fmt.Errorf("usage: cron add DELAY TEXT, or cron run")
}

func add(ctx context.Context, reminders *chanq.Queue[string], delay time.Duration, text string) error {
	_, err := reminders.Send(ctx, chanq.Message[string]{Body: text, Delay: delay})
	return err
}

// remind prints what is due. A reminder that cannot be printed is due again later, and dead after Spec.MaxAttempts, which is 20.
func remind(ctx context.Context, reminders *chanq.Queue[string], out io.Writer) error {
	consumer, err := reminders.Consume(ctx, chanq.ConsumerConfig{Prefetch: 1, StopWhenIdle: true})
	if err != nil {
		return err
	}
	return consumer.Handle(1, func(_ context.Context, l *chanq.Lease[string]) error {
		_, err := fmt.Fprintf(out, "%s (since %s)\n", l.Body, l.DueAt.Format(time.Kitchen))
		if err != nil {
			return chanq.RetryAfter(5*time.Minute, err)
		}
		return nil
	})
}
