package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/cmd/chanq/internal/tryout"
)

func (a *app) benchCommand() *cobra.Command {
	f := tryout.Config{}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure a queue on this database, in half a minute",
		Long: `Measures this database in half a minute, with a queue that it makes and drops. It
prints how many messages per second a producer stores, and how many a consumer takes
and acks; and how long a message takes from Send to the handler. Each of the four
parts takes a quarter of --for.

The figures are of one program on this machine, on this database as it is now: other
programs on them slow it down, and it slows them down. Try first on a server for tests. If the command is
killed, a queue bench_… remains: chanq drop --with-messages removes it.`,
		Example: `  chanq bench --db /tmp/bench.db
  chanq bench --dsn @/run/secrets/shop-dsn --for 1m --body 4096`,
		Args: exactly(0, "no argument: the queue is a new one"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case f.For < 100*time.Millisecond || f.For > time.Hour:
				return usage("--for is %v: must be from 100ms to 1h", f.For)
			case f.Body < 0 || f.Body > 1<<20:
				return usage("--body is %d: must be from 0 to %d", f.Body, 1<<20)
			case f.Workers < 1 || f.Workers > 1000:
				return usage("--workers is %d: must be from 1 to 1000", f.Workers)
			}
			return a.bench(cmd.Context(), f)
		},
	}
	flags := cmd.Flags()
	flags.DurationVar(&f.For, "for", 30*time.Second, "how long to measure, in all")
	flags.IntVar(&f.Body, "body", 200, "`bytes` of a body")
	flags.IntVar(&f.Workers, "workers", 8, "goroutines that send, and that handle")
	return a.durabilityFlag(cmd)
}

// dropTimeout bounds the removal of the command's queue, however the command ends.
const dropTimeout = 30 * time.Second

func (a *app) bench(ctx context.Context, f tryout.Config) (err error) {
	c, err := a.connect(ctx, mayCreate)
	if err != nil {
		return err
	}
	defer c.Close()
	config := a.storingConfig(c)
	config.History = chanq.HistoryOff
	name := fmt.Sprintf("bench_%x", time.Now().UnixNano())
	if err := chanq.Migrate(ctx, c.DB, name, config); err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTimeout)
		defer cancel()
		err = errors.Join(err, chanqadmin.DropWithMessages(ctx, c.DB, name, config, chanqadmin.Change{}))
	}()
	q, err := chanq.Open[[]byte](ctx, c.DB, name, config)
	if err != nil {
		return err
	}
	admin, err := chanqadmin.Open(ctx, c.DB, name, config)
	if err != nil {
		return err
	}
	if a.output != "json" {
		fmt.Fprintf(a.out, "%s, bodies of %d bytes, %d workers\n", visible(c.name), f.Body, f.Workers)
		f.Begin = func(part string) { fmt.Fprintf(a.err, "%s …\n", part) }
	}
	r, err := tryout.Run(ctx, q, admin, f)
	if err != nil {
		return err
	}
	if a.output == "json" {
		return a.json(r)
	}
	ms := func(s float64) string { return fmt.Sprintf("%.2f ms", 1000*s) }
	return a.table([][]string{
		{"a round trip", ms(r.RoundTrip), "the least of some reads"},
		{"stored", rate(r.Stored) + "/s", fmt.Sprintf("messages, by %d goroutines that wait for each Send", f.Workers)},
		{"stored in bulk", rate(r.Bulk) + "/s", "messages, by one goroutine and SendBatch of 500"},
		{"consumed", rate(r.Consumed) + "/s", fmt.Sprintf("messages, claimed, handled by %d workers and acked, of those", f.Workers)},
		{"under way", ms(r.Median) + ", " + ms(r.P99), fmt.Sprintf("from Send to handler at %.0f/s: the median, and what 99 of 100 are below", r.Paced)},
	})
}
