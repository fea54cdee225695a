package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
)

// queues checks each queue as its programs use it.
func (e *examination) queues() {
	names := e.Queues
	if len(names) == 0 {
		ctx, cancel := context.WithTimeout(e.ctx, e.Look)
		defer cancel()
		var err error
		if names, err = chanqadmin.Queues(ctx, e.DB, e.Config); err != nil {
			e.unseen("queues", "", err)
			return
		}
		if len(names) == 0 {
			e.add(Finding{Check: "queues", Status: Warning, Found: "there is no queue in this schema", Remedy: "chanq migrate QUEUE makes one; or give --schema, if they are in another"})
		}
	}
	for _, name := range names {
		e.queue(name)
	}
}

// pauseText returns since when a queue is paused, by whom and why, as far as known.
func pauseText(ctx context.Context, q *chanqadmin.Queue) string {
	p, err := q.Paused(ctx)
	if err != nil || p.Since.IsZero() {
		return ""
	}
	text := fmt.Sprintf(" since %s by %s", p.Since.UTC().Format(time.RFC3339), p.By)
	if p.Reason != "" {
		text += ": " + p.Reason
	}
	return text
}

func (e *examination) queue(name string) {
	ctx, cancel := context.WithTimeout(e.ctx, 3*e.Look)
	defer cancel()
	add := func(check string, status Status, found, remedy string) {
		e.add(Finding{check, name, status, found, remedy})
	}
	config := e.Config
	config, err := chanq.StoredConfig(ctx, e.DB, name, config)
	if err != nil {
		add("tables", Failure, err.Error(), remedyOf(err, name))
		return
	}
	_, err = chanq.Open[[]byte](ctx, e.DB, name, config)
	switch {
	case errors.Is(err, chanq.ErrNotDurable):
		add("durability", Failure, err.Error(), "apply the remedy that it names; if a loss of messages in a crash is acceptable, set Config.Durability")
	case err != nil:
		add("tables", Failure, err.Error(), remedyOf(err, name))
		return
	default:
		add("durability", OK, "what is committed is kept, as far as this connection's settings say", "")
	}
	q, err := chanqadmin.Open(ctx, e.DB, name, config)
	if err != nil {
		add("tables", Failure, err.Error(), remedyOf(err, name))
		return
	}
	e.rights(name)
	samples, err := q.History(ctx, time.Now().Add(-time.Minute), chanqadmin.StepFine)
	e.state(ctx, q, stands(samples))
	e.failures(name, samples)
	switch {
	case errors.Is(err, chanq.ErrNoSchema):
		add("history", Warning, "the table of samples is missing: charts and rates stay empty", "chanq migrate "+name)
	case err != nil:
		e.unseen("history", name, err)
	}
}

func remedyOf(err error, queue string) string {
	if errors.Is(err, chanq.ErrNoSchema) {
		return "chanq migrate " + queue
	}
	return ""
}

// stands reports whether there were consumers for most of the last minute and no deliveries.
func stands(lastMinute []chanqadmin.Sample) bool {
	delivered := int64(0)
	for _, s := range lastMinute {
		delivered += s.Delivered
	}
	return len(lastMinute) >= 5 && delivered == 0
}

// failures checks how many of the last minute's deliveries failed. With a deep backlog, failed messages
// are due again behind all of it, so that no message is dead-lettered for a long time.
func (e *examination) failures(queue string, lastMinute []chanqadmin.Sample) {
	var failed, delivered int64
	for _, s := range lastMinute {
		failed, delivered = failed+s.Nacked+s.Died, delivered+s.Delivered
	}
	if delivered >= 10 && failed*5 > delivered {
		e.add(Finding{"failures", queue, Warning, fmt.Sprintf("of %d deliveries in the last minute %d failed", delivered, failed),
			"the programs' logs have the errors (Hooks.Handled), and so has last_error: chanq peek -o json " + queue + ", with --state scheduled for what waits for its next attempt"})
	}
}

// lateReady is how long a message of an active queue may have been due.
const lateReady = time.Minute

// state checks the messages and consumers of a queue.
func (e *examination) state(ctx context.Context, q *chanqadmin.Queue, stands bool) {
	name := q.Name()
	add := func(check string, status Status, found, remedy string) {
		e.add(Finding{check, name, status, found, remedy})
	}
	s, err := q.Stats(ctx)
	if err != nil {
		e.unseen("messages", name, err)
		return
	}
	consumers, err := q.Consumers(ctx)
	if err != nil {
		e.unseen("consumers", name, err)
		return
	}
	found := fmt.Sprintf("%s ready, %s leased, %s dead; the oldest ready one has been due for %v",
		counted(s.Ready, s.Limit), counted(s.Leased, s.Limit), counted(s.Dead, s.Limit), round(s.OldestReady))
	running := fmt.Sprintf("%d consumers: ", len(consumers))
	switch {
	case s.Paused && s.Ready > 0:
		add("paused", Warning, "the queue is paused"+pauseText(ctx, q)+", and "+found, "chanq resume "+name)
	case s.Ready > 0 && len(consumers) == 0:
		add("consumers", Failure, "no consumer runs: "+found, "start a consumer; if its process runs, its log reports an outage or a missing permission (Hooks.Availability, Consumer.Err)")
	case s.OldestReady > lateReady && stands:
		add("oldest", Warning, running+found+"; for a minute nothing has been delivered", "handlers are probably stuck: chanq consumers lists the consumers, chanq peek --state leased the messages that they hold; dump their goroutines (SIGQUIT, or net/http/pprof), give the call that hangs a deadline, and restart the program")
	case s.OldestReady > lateReady:
		add("oldest", Warning, running+found, "handlers are too slow, too few or stuck: chanq consumers lists the consumers, chanq peek --state leased the messages that they hold; add workers or consumers, and find out whether a call in the handler hangs")
	default:
		add("messages", OK, running+found, "")
	}
	if s.Dead > 0 {
		found, purged := counted(s.Dead, s.Limit)+" dead messages"+e.cause(ctx, q), ""
		if spec, _ := q.Opened(); spec.DeadKey == chanq.DeadKeyHolds {
			found, purged = found+"; the later messages of their keys wait", ", which lets the later messages of their keys go on without them"
		}
		add("dead", Warning, found, fmt.Sprintf("chanq causes %[1]s groups them; when the cause is fixed, chanq redrive %[1]s, or chanq purge --state dead %[1]s%[2]s", name, purged))
	}
}

// cause returns the error of the message that was dead-lettered last.
func (e *examination) cause(ctx context.Context, q *chanqadmin.Queue) string {
	last, err := q.List(ctx, chanqadmin.Select{State: chanqadmin.StateDead}, chanqadmin.List{Limit: 1})
	if err != nil || len(last.Entries) == 0 || last.Entries[0].LastError == "" {
		return ""
	}
	text := []rune(last.Entries[0].LastError)
	if len(text) > 120 {
		text = append(text[:119], '…')
	}
	return fmt.Sprintf(", the last %v ago: %q", round(time.Since(last.Entries[0].EndedAt)), string(text))
}

func counted(n, limit int) string {
	if n >= limit {
		return fmt.Sprintf("%d or more", n)
	}
	return fmt.Sprint(n)
}
