package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chanq/chanq"
)

type sendFlags struct {
	priority string
	delay    time.Duration
	ttl      time.Duration
	headers  []string
	dedupKey string
	does     string
	most     time.Duration
	key      string
	kind     string
}

func (a *app) sendCommand() *cobra.Command {
	var f sendFlags
	cmd := &cobra.Command{
		Use:   "send QUEUE [BODY...]",
		Short: "Send messages: each argument, or each line of the standard input",
		Long: `Sends each BODY as a message, or without any, each line of the standard input.
A message that is reported as sent is in the database.

Bodies are stored as they are, and not checked. An application whose queue has a
struct, a map or a number as its type of body reads JSON, unless it sets another
Codec: give it JSON, or the message is dead-lettered. Queues of
string, []byte or json.RawMessage take any text.

With bodies it prints their IDs; with lines how many there were; with -o json a
receipt for each.`,
		Example: `  chanq send --db jobs.db mail '{"to":"a@example.com"}'
  chanq send --db jobs.db --priority high --delay 10m mail hello
  chanq send --db jobs.db --key customer-7 payments '{"amount":12}'
  grep '^{' events.log | chanq send --db jobs.db events`,
		Args: atLeast(1, "a queue, and bodies or lines on the standard input"),
		RunE: func(cmd *cobra.Command, args []string) error {
			like, err := f.message()
			if err != nil {
				return err
			}
			if f.dedupKey != "" && len(args) != 2 {
				return usage("--dedup-key is for one message: give one BODY as an argument")
			}
			return a.send(cmd.Context(), args[0], args[1:], like)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.priority, "priority", "normal", "`priority`: low, normal, high or urgent")
	flags.DurationVar(&f.delay, "delay", 0, "how long until the messages are due")
	flags.DurationVar(&f.ttl, "ttl", 0, "how long from now until they expire; an expired message that was not claimed is dead-lettered (default never)")
	flags.StringArrayVar(&f.headers, "header", nil, "`name=value` of a header; repeat the flag for more")
	flags.StringVar(&f.dedupKey, "dedup-key", "", "`key` by which duplicates are detected: no other message in the queue has it")
	flags.StringVar(&f.does, "on-duplicate", "keep-first", "`what` to do if a message in the queue has the --dedup-key: keep-first, keep-queued, replace or debounce; only keep-first also keeps a leased one")
	flags.DurationVar(&f.most, "debounce-max", 0, "with debounce: how long after the first send the message is due at the latest (default 10 times --delay)")
	flags.StringVar(&f.key, "key", "", "`key` of an ordered queue, in whose order the messages are delivered")
	flags.StringVar(&f.kind, "type", "", "`type` of the messages")
	return a.durabilityFlag(cmd)
}

// message returns the fields that all messages of a call share.
func (f sendFlags) message() (m chanq.Message[[]byte], err error) {
	if m.Priority, err = parsePriority(f.priority); err != nil {
		return m, err
	}
	if f.delay < 0 {
		return m, usage("--delay is %v: must be 0 or more", f.delay)
	}
	if f.ttl < 0 || f.ttl > 0 && f.ttl <= f.delay {
		return m, usage("--ttl is %v: must be 0 (never) or more than --delay, %v", f.ttl, f.delay)
	}
	m.Delay, m.TTL, m.DedupKey, m.Key, m.Type = f.delay, f.ttl, f.dedupKey, f.key, f.kind
	for m.OnDuplicate = chanq.KeepFirst; m.OnDuplicate.String() != f.does; m.OnDuplicate++ {
		if m.OnDuplicate == chanq.Debounce {
			return m, usage("--on-duplicate is %q: must be keep-first, keep-queued, replace or debounce", f.does)
		}
	}
	debounces := m.OnDuplicate == chanq.Debounce
	switch m.DebounceMax = f.most; {
	case m.OnDuplicate != chanq.KeepFirst && f.dedupKey == "":
		return m, usage("--on-duplicate needs --dedup-key")
	case debounces && f.delay == 0:
		return m, usage("--on-duplicate debounce needs --delay")
	case f.most != 0 && (!debounces || f.most < f.delay):
		return m, usage("--debounce-max is %v: must be at least --delay, %v, and is for --on-duplicate debounce", f.most, f.delay)
	}
	for i, h := range f.headers {
		name, value, ok := strings.Cut(h, "=")
		if !ok || name == "" {
			return m, usage("--header number %d: must be name=value", i+1)
		}
		if m.Headers == nil {
			m.Headers = map[string]string{}
		}
		m.Headers[name] = value
	}
	return m, nil
}

func parsePriority(s string) (chanq.Priority, error) {
	for p := chanq.PriorityLow; p <= chanq.PriorityUrgent; p++ {
		if p.String() == s {
			return p, nil
		}
	}
	return 0, usage("--priority is %q: must be low, normal, high or urgent", s)
}

func (a *app) send(ctx context.Context, queue string, bodies []string, like chanq.Message[[]byte]) (err error) {
	c, err := a.connect(ctx, mustExist)
	if err != nil {
		return err
	}
	defer c.Close()
	q, err := openQueue(ctx, c, queue, a.storingConfig(c))
	if err != nil {
		return err
	}
	p, err := q.Producer(ctx, chanq.ProducerConfig{})
	if err != nil {
		return err
	}
	defer p.Close(context.WithoutCancel(ctx)) // SendBatch leaves no message in it
	s := &sender{app: a, producer: p, like: like}
	if len(bodies) > 0 {
		s.each = true
		for _, b := range bodies {
			s.add([]byte(b))
		}
		return s.flush(ctx)
	}
	return s.lines(ctx, q.Spec().MaxBody)
}

// sender sends messages in batches and prints their outcomes.
type sender struct {
	*app
	producer         *chanq.Producer[[]byte]
	like             chanq.Message[[]byte]
	each             bool // print the ID of each message
	group            []chanq.Message[[]byte]
	bytes            int
	sent, duplicates int
}

func (s *sender) add(body []byte) {
	m := s.like
	m.Body = body
	s.group = append(s.group, m)
	s.bytes += len(body)
}

// flush sends the batch. An interrupt does not abort a send that has begun.
func (s *sender) flush(ctx context.Context) error {
	if len(s.group) == 0 {
		return nil
	}
	receipts, err := s.producer.SendBatch(context.WithoutCancel(ctx), s.group...)
	var failed *chanq.BatchError
	errors.As(err, &failed)
	for i, r := range receipts {
		if failed != nil && failed.Errs[i] != nil {
			continue
		}
		s.sent++
		if r.Duplicate {
			s.sent--
			s.duplicates++
		}
		if e := s.receipt(r); e != nil {
			return e
		}
	}
	s.group, s.bytes = s.group[:0], 0
	if failed != nil {
		for _, e := range failed.Errs {
			if e != nil {
				return fmt.Errorf("%w; %s sent", e, count(s.sent, "message"))
			}
		}
	}
	return err
}

func (s *sender) receipt(r chanq.Receipt) (err error) {
	switch {
	case s.output == "json":
		err = s.json(map[string]any{"id": r.ID, "duplicate": r.Duplicate, "replaced": r.Replaced})
	case s.each && r.Duplicate:
		_, err = fmt.Fprintf(s.out, "%s (in the queue before)\n", r.ID)
	case s.each && r.Replaced:
		_, err = fmt.Fprintf(s.out, "%s (replaced)\n", r.ID)
	case s.each:
		_, err = fmt.Fprintln(s.out, r.ID)
	}
	return err
}

// Bounds of a batch of lines.
const (
	groupLines = 2000
	groupBytes = 4 << 20
)

// lines sends the lines of the standard input, in batches of the lines that are available.
func (s *sender) lines(ctx context.Context, maxBody int) error {
	lines := make(chan []byte, groupLines)
	var readErr error
	// It ends with the input or with the process, because a read cannot be interrupted.
	go func() {
		defer close(lines)
		in := bufio.NewScanner(s.in)
		most := maxBody + len("\r\n")
		in.Buffer(make([]byte, min(most, 64<<10)), most)
		for in.Scan() {
			select {
			case lines <- append([]byte{}, in.Bytes()...):
			case <-ctx.Done():
				return
			}
		}
		if readErr = in.Err(); errors.Is(readErr, bufio.ErrTooLong) {
			readErr = fmt.Errorf("a line is longer than the max-body of the queue, %d bytes", maxBody)
		}
	}()
	bar := s.progress("messages", time.Second)
	bar.Start("sending", 0, 0)
	err := s.sendLines(ctx, lines, bar)
	bar.End()
	if err != nil {
		return err
	}
	if readErr != nil {
		return fmt.Errorf("read the standard input: %w; %s sent", readErr, count(s.sent, "message"))
	}
	if s.output == "text" {
		_, err = fmt.Fprintf(s.out, "%s sent\n", count(s.sent, "message"))
	}
	return err
}

// sendLines returns nil when lines is closed. Only then is the error of the read known.
func (s *sender) sendLines(ctx context.Context, lines <-chan []byte, bar *progress) error {
	for {
		select {
		case line, open := <-lines:
			if !open {
				return nil
			}
			s.add(line)
		case <-ctx.Done():
			fmt.Fprintf(s.err, "%s sent\n", count(s.sent, "message"))
			return ctx.Err()
		}
		for more := true; more && len(s.group) < groupLines && s.bytes < groupBytes; {
			select {
			case line, open := <-lines:
				if more = open; open {
					s.add(line)
				}
			default:
				more = false
			}
		}
		n := len(s.group)
		if err := s.flush(ctx); err != nil {
			return err
		}
		bar.Add(n)
	}
}
