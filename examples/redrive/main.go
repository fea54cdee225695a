// Command redrive makes dead messages of one cause ready again, at a limited rate. Without -run it only counts them, and without a
// cause it prints the groups of dead messages. It reads the queue that examples/hello creates.
//
//	go run ./examples/redrive
//	go run ./examples/redrive rejected
//	go run ./examples/redrive -run -per-second 20 rejected
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/embedded"
)

func main() {
	change := chanqadmin.Change{Reason: "the shop has stock again"}
	run := flag.Bool("run", false, "redrive the messages; without it they are counted")
	flag.IntVar(&change.PerSecond, "per-second", 20, "the most messages that are redriven per second")
	flag.Parse()
	change.DryRun = !*run
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) // a signal stops a redrive after its step
	defer stop()
	db, err := embedded.Open("shop.db")
	if err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(command(ctx, db, os.Stdout, flag.Arg(0), change), db.Close()); err != nil {
		log.Fatal(err)
	}
}

func command(ctx context.Context, db *sql.DB, out io.Writer, cause string, change chanqadmin.Change) error {
	orders, err := chanqadmin.Open(ctx, db, "orders", chanq.Config{})
	if err != nil {
		return err
	}
	if cause == "" {
		causes, err := orders.Causes(ctx)
		for _, g := range causes.Groups {
			fmt.Fprintf(out, "%s %s: %s, such as %q\n", g.Cause, g.Fingerprint, count(g.Messages, g.More), g.LastError)
		}
		return err
	}
	dead := chanqadmin.Select{State: chanqadmin.StateDead}
	if dead.Cause, err = chanqadmin.ParseCause(cause); err != nil {
		return err
	}
	change.Progress = func(n int) { fmt.Fprintf(out, "%d redriven\n", n) }
	done, err := orders.Redrive(ctx, dead, change)
	switch {
	case err != nil && done.Messages == 0:
	case change.DryRun:
		fmt.Fprintf(out, "%s dead messages are %s\n", count(done.Messages, done.More), cause)
	default:
		fmt.Fprintf(out, "%d are ready again\n", done.Messages)
	}
	return err
}

// count formats n, which may be less than the total.
func count(n int, more bool) string {
	if more {
		return fmt.Sprint("at least ", n)
	}
	return fmt.Sprint(n)
}
