package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/chanq/chanq"
)

type receiveFlags struct {
	n            int
	follow, nack bool
	delay        time.Duration
	cause        string
}

func (a *app) receiveCommand() *cobra.Command {
	var f receiveFlags
	cmd := &cobra.Command{
		Use:   "receive QUEUE",
		Short: "Take messages, print them and ack them",
		Long: `Takes ready messages, prints each body on a line (with -o json, the whole message),
and acks it: the message leaves the queue. A message that cannot be printed is released.
On a terminal, control characters are shown as \x1b; a pipe or a file gets each body as
it is.

chanq peek shows messages without taking them.`,
		Example: `  chanq receive --db jobs.db mail
  chanq receive --db jobs.db -n 0 -o json mail > mail.jsonl
  chanq receive --db jobs.db --follow mail
  chanq receive --db jobs.db --nack --delay 1h --cause 'not today' mail`,
		Args: exactly(1, "one queue"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("number") && f.follow {
				f.n = 0
			}
			if err := f.check(cmd); err != nil {
				return err
			}
			return a.receive(cmd.Context(), args[0], f)
		},
	}
	flags := cmd.Flags()
	flags.IntVarP(&f.n, "number", "n", 1, "how many messages; 0 takes all that are ready, or with --follow any number")
	flags.BoolVarP(&f.follow, "follow", "f", false, "wait for further messages until interrupted")
	flags.BoolVar(&f.nack, "nack", false, "give each message back as failed instead of acking it")
	flags.DurationVar(&f.delay, "delay", 0, "with --nack: how long until it is due again")
	flags.StringVar(&f.cause, "cause", "chanq receive --nack", "with --nack: the `text` kept as its last error")
	return cmd
}

func (f receiveFlags) check(cmd *cobra.Command) error {
	switch {
	case f.n < 0:
		return usage("-n is %d: must be 0 or more", f.n)
	case f.delay < 0:
		return usage("--delay is %v: must be 0 or more", f.delay)
	case f.nack && f.n == 0 && f.delay == 0:
		return usage("--nack of all messages needs --delay: without it the same messages would be received again")
	}
	for _, name := range []string{"delay", "cause"} {
		if cmd.Flags().Changed(name) && !f.nack {
			return usage("--%s needs --nack", name)
		}
	}
	return nil
}

func (a *app) receive(ctx context.Context, queue string, f receiveFlags) error {
	c, err := a.connect(ctx, mustExist)
	if err != nil {
		return err
	}
	defer c.Close()
	q, err := openQueue(ctx, c, queue, a.queueConfig(c))
	if err != nil {
		return err
	}
	r := &receiver{app: a, flags: f}
	return r.take(ctx, q)
}

type receiver struct {
	*app
	flags receiveFlags
}

// take receives up to the given number of messages: the ready ones, or with --follow also those that
// arrive. An interrupt is the normal end of --follow, not a failure.
func (r *receiver) take(ctx context.Context, q *chanq.Queue[[]byte]) error {
	prefetch := 100
	if r.flags.n > 0 {
		prefetch = min(prefetch, r.flags.n)
	}
	if !r.flags.follow && ctx.Err() != nil {
		return ctx.Err()
	}
	c, err := q.Consume(ctx, chanq.ConsumerConfig{Prefetch: prefetch, StopWhenIdle: !r.flags.follow})
	if err != nil {
		return err
	}
	taken := 0
	for l := range c.All() {
		if err = r.print(l); err != nil {
			_ = l.Release()
			break
		}
		if err = r.settle(ctx, l); err != nil {
			break
		}
		if taken++; taken == r.flags.n {
			break
		}
	}
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	err = errors.Join(err, c.Shutdown(bound))
	switch {
	case err != nil || r.flags.follow:
	case ctx.Err() != nil && (taken == 0 || taken != r.flags.n):
		err = ctx.Err()
	case taken == 0:
		fmt.Fprintf(r.err, "no message of queue %s is ready\n", q.Name())
	}
	return err
}

func (r *receiver) print(l *chanq.Lease[[]byte]) error {
	if r.output == "json" {
		return r.json(leaseMessage(l))
	}
	body := l.Body
	if r.terminal != nil {
		body = []byte(visible(string(body)))
	}
	_, err := fmt.Fprintf(r.out, "%s\n", body)
	return err
}

// settle waits for the outcome: a printed message should leave the queue.
func (r *receiver) settle(ctx context.Context, l *chanq.Lease[[]byte]) error {
	var err error
	if r.flags.nack {
		err = l.Nack(chanq.RetryAfter(r.flags.delay, errors.New(r.flags.cause)))
	} else {
		err = l.Ack()
	}
	if err == nil {
		err = l.Wait(context.WithoutCancel(ctx))
	}
	if err != nil {
		return fmt.Errorf("message %s was printed, but: %w", l.ID, err)
	}
	return nil
}
