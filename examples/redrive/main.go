// Command redrive makes dead messages of one cause ready again: first a trial run, which shows how many there are, then so many per second.
// Without a cause it prints the groups of dead messages.
//
//	go run ./examples/redrive
//	go run ./examples/redrive rejected 20
package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"strconv"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/embedded"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt) // an interrupt ends a redrive after its step
	defer stop()
	db, err := embedded.Open("orders.db")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := command(ctx, db, os.Stdout, os.Args[1:]); err != nil {
		log.Print(err)
	}
}

func command(ctx context.Context, db *sql.DB, out io.Writer, args []string) error {
	orders, err := chanqadmin.Open(ctx, db, "orders", chanq.Config{})
	if err != nil {
		return err
	}
	if len(args) != 2 {
		return causes(ctx, orders, out)
	}
	cause, err := chanqadmin.ParseCause(args[0])
	if err != nil {
		return err
	}
	perSecond, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	return redrive(ctx, orders, out, cause, perSecond)
}

func causes(ctx context.Context, q *chanqadmin.Queue, out io.Writer) error {
	causes, err := q.Causes(ctx)
	for _, g := range causes.Groups {
		fmt.Fprintf(out, "%s %s: %d, such as %q\n", g.Cause, g.Fingerprint, g.Messages, g.LastError)
	}
	return err
}

func redrive(ctx context.Context, q *chanqadmin.Queue, out io.Writer, cause chanq.Cause, perSecond int) error {
	selected := chanqadmin.Select{State: chanqadmin.StateDead, Cause: cause}
	found, err := q.Redrive(ctx, selected, chanqadmin.Change{DryRun: true})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d dead messages are %s\n", found.Messages, cause)
	done, err := q.Redrive(ctx, selected, chanqadmin.Change{
		Reason: "the shop has stock again", PerSecond: perSecond,
		Progress: func(n int) { fmt.Fprintf(out, "%d redriven\n", n) },
	})
	fmt.Fprintf(out, "%d are ready again\n", done.Messages)
	return err
}
