package chanqtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
)

// Message is a message that waits in a queue.
type Message struct {
	ID       chanq.ID
	Type     string // the kind of a job
	Body     string // as it is stored, for example JSON
	Headers  map[string]string
	Priority chanq.Priority
	// Delay is how long after its send the message is due: Message.Delay or, after a failed attempt, until the next one.
	Delay time.Duration
	// TTL is how long after its send it expires, or 0.
	TTL           time.Duration
	Key, DedupKey string
	Attempts      int    // so far
	LastError     string // of the last of them
}

// String returns one line without the ID and what is not set, for example: welcome {"Name":"Ada"} in 1h0m0s
func (m Message) String() string {
	var text strings.Builder
	if m.Type != "" {
		text.WriteString(m.Type + " ")
	}
	if utf8.ValidString(m.Body) {
		text.WriteString(m.Body)
	} else {
		fmt.Fprintf(&text, "%q", m.Body)
	}
	add := func(is bool, format string, value any) {
		if is {
			fmt.Fprintf(&text, format, value)
		}
	}
	add(m.Delay > 0, " in %v", rounded(m.Delay))
	add(m.TTL > 0, " ttl %v", rounded(m.TTL))
	add(m.Key != "", " key %q", m.Key)
	add(m.DedupKey != "", " dedup key %q", m.DedupKey)
	add(m.Priority != 0, " priority %v", m.Priority)
	add(len(m.Headers) > 0, " headers %v", m.Headers)
	add(m.Attempts > 0, " attempts %d", m.Attempts)
	add(m.LastError != "", ": %s", firstLine(m.LastError))
	return text.String()
}

// rounded leaves out the time that a failed attempt took.
func rounded(d time.Duration) time.Duration {
	if d < 10*time.Second {
		return d
	}
	return d.Round(time.Second)
}

// Sent returns the messages that wait in a queue, up to 10,000: the ready ones in the order of claims, and then the scheduled ones by the
// time when they are due.
func Sent[T any](t testing.TB, q *chanq.Queue[T]) []Message {
	t.Helper()
	n := q.Names()
	a := databaseWith(t, "Sent", n).adminOf(t, "Sent", n.Queue, n.Schema)
	scheduled, ready := list(t, "Sent", a, chanqadmin.StateScheduled, mostSent), list(t, "Sent", a, chanqadmin.StateReady, mostSent)
	due := map[chanq.ID]bool{}
	for _, e := range ready {
		due[e.ID] = true
	}
	scheduled = slices.DeleteFunc(scheduled, func(e chanqadmin.Entry) bool { return due[e.ID] }) // due since that list
	slices.SortStableFunc(scheduled, func(a, b chanqadmin.Entry) int { return a.DueAt.Compare(b.DueAt) })
	messages := make([]Message, 0, len(ready)+len(scheduled))
	for _, e := range append(ready, scheduled...) {
		messages = append(messages, messageOf(e))
	}
	return messages
}

const mostSent = 10_000

func messageOf(e chanqadmin.Entry) Message {
	m := Message{ID: e.ID, Type: e.Type, Body: string(e.Body), Headers: e.Headers, Priority: e.Priority, Delay: e.DueAt.Sub(e.EnqueuedAt),
		Key: e.Key, DedupKey: e.DedupKey, Attempts: e.Attempts, LastError: e.LastError}
	if !e.ExpiresAt.IsZero() {
		m.TTL = e.ExpiresAt.Sub(e.EnqueuedAt)
	}
	return m
}

// list returns up to most messages of a state.
func list(t testing.TB, op string, a *chanqadmin.Queue, s chanqadmin.State, most int) (entries []chanqadmin.Entry) {
	t.Helper()
	for l := (chanqadmin.List{Bodies: true, Limit: min(most, chanqadmin.MostListed)}); ; {
		page, err := a.List(context.Background(), chanqadmin.Select{State: s}, l)
		if err != nil {
			t.Fatalf("chanqtest: %s: %v", op, err)
		}
		entries = append(entries, page.Entries...)
		if l.After = page.Next; l.After == "" || len(entries) >= most {
			return entries[:min(most, len(entries))]
		}
	}
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
