// Command situation causes a problem of a queue until it is interrupted, and then fixes it until it is
// interrupted again. Inspect it with chanq top, chanq doctor, chanq ui and Prometheus. See package
// trouble.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqprom"
	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/prove/trouble"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "situation:", err)
		os.Exit(1)
	}
}

func run() error {
	db := flag.String("db", "", "SQLite `file`, or")
	dsn := flag.String("dsn", "", "`DSN` of a PostgreSQL database")
	queue := flag.String("queue", "post", "`name` of the queue; its tables are made")
	messages := flag.Int("messages", 1_000_000, "how `many` messages are put into it first")
	metrics := flag.String("metrics", "127.0.0.1:0", "`address` of /metrics")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "situation [flags] SITUATION, which is one of")
		for _, s := range trouble.Situations {
			fmt.Fprintf(flag.CommandLine.Output(), "  %-10s %s\n", s.Name, s.What)
		}
		flag.PrintDefaults()
	}
	flag.Parse()
	s, found := trouble.Named(flag.Arg(0))
	if !found || flag.NArg() != 1 || (*db == "") == (*dsn == "") {
		flag.Usage()
		return errors.New("give a situation, and -db or -dsn")
	}
	m := chanqprom.New(chanqprom.Config{})
	p := &trouble.Place{Queue: *queue, Postgres: *dsn != "", Hooks: m.Hooks()}
	if err := open(p, *db, *dsn); err != nil {
		return err
	}
	defer p.DB.Close()
	ctx := context.Background()
	began := time.Now()
	if err := p.Fill(ctx, *messages); err != nil {
		return err
	}
	fmt.Printf("%d messages are in %s after %v\n", *messages, *queue, time.Since(began).Round(time.Millisecond))
	defer m.WatchAll(p.DB, chanq.Config{})()
	listener, err := net.Listen("tcp", *metrics)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: m.Handler(), ReadHeaderTimeout: time.Second}
	defer server.Close()
	go func() { _ = server.Serve(listener) }() // ends with Close
	fmt.Printf("metrics: http://%s/metrics\n", listener.Addr())
	return play(ctx, p, s)
}

func open(p *trouble.Place, file, dsn string) (err error) {
	if dsn == "" {
		p.DB, err = embedded.Open(file)
		return err
	}
	config, err := pgx.ParseConfig(dsn)
	if err == nil {
		config.RuntimeParams["application_name"] = "post-office"
		p.DB = stdlib.OpenDB(*config)
	}
	return err
}

func play(ctx context.Context, p *trouble.Place, s trouble.Situation) error {
	fix, err := s.Begin(ctx, p)
	if err != nil {
		return err
	}
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	fmt.Printf("%s: %s. Interrupt to fix it.\n", s.Name, s.What)
	<-interrupts
	end, err := fix(ctx)
	if err != nil {
		return err
	}
	fmt.Println("It is fixed. Interrupt to end.")
	<-interrupts
	end()
	return nil
}
