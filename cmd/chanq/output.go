package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
)

// json writes one value as one line.
func (a *app) json(v any) error {
	var line bytes.Buffer
	e := json.NewEncoder(&line)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	text := line.Bytes()
	if a.terminal != nil {
		text = visibleJSON(text)
	}
	_, err := a.out.Write(text)
	return err
}

// table writes rows in columns, the first row being the heading.
func (a *app) table(rows [][]string) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	return w.Flush()
}

// message is the JSON of a received message, as chanqadmin.Entry is for an inspected message. A body
// that is text is in Body, any other body in BodyBase64.
type message struct {
	ID         chanq.ID          `json:"id"`
	Priority   string            `json:"priority"`
	Attempt    int               `json:"attempt"`
	Fence      int64             `json:"fence"`
	EnqueuedAt time.Time         `json:"enqueued_at"`
	DedupKey   string            `json:"dedup_key,omitempty"`
	Key        string            `json:"key,omitempty"`
	Type       string            `json:"type,omitempty"`
	Headers    map[string]string `json:"headers,omitempty"`
	Body       *string           `json:"body,omitempty"`
	BodyBase64 []byte            `json:"body_base64,omitempty"`
}

func leaseMessage(l *chanq.Lease[[]byte]) message {
	m := message{
		ID: l.ID, Priority: l.Priority.String(), Attempt: l.Attempt, Fence: l.Fence, EnqueuedAt: l.EnqueuedAt.UTC(),
		DedupKey: l.DedupKey, Key: l.Key, Type: l.Type, Headers: l.Headers,
	}
	if utf8.Valid(l.Body) {
		body := string(l.Body)
		m.Body = &body
	} else {
		m.BodyBase64 = l.Body
	}
	return m
}

// entries writes stored messages.
func (a *app) entries(list []chanqadmin.Entry) error {
	if a.output == "json" {
		for _, e := range list {
			if err := a.json(e); err != nil {
				return err
			}
		}
		return nil
	}
	// Rarely used columns are shown if any message needs them.
	expiry := slices.ContainsFunc(list, func(e chanqadmin.Entry) bool { return !e.ExpiresAt.IsZero() })
	holder := slices.ContainsFunc(list, func(e chanqadmin.Entry) bool { return !e.Consumer.IsZero() })
	keyed := slices.ContainsFunc(list, func(e chanqadmin.Entry) bool { return e.Key != "" })
	typed := slices.ContainsFunc(list, func(e chanqadmin.Entry) bool { return e.Type != "" })
	held := slices.ContainsFunc(list, func(e chanqadmin.Entry) bool { return !e.HeldSince.IsZero() })
	if held { // the longest first
		slices.SortStableFunc(list, func(a, b chanqadmin.Entry) int { return a.HeldSince.Compare(b.HeldSince) })
	}
	dead := slices.ContainsFunc(list, func(e chanqadmin.Entry) bool { return e.Cause != 0 })
	row := func(first []string, key, kind, expires, since, by, cause string, last ...string) []string {
		if keyed {
			first = append(first, key)
		}
		if typed {
			first = append(first, kind)
		}
		if expiry {
			first = append(first, expires)
		}
		if held {
			first = append(first, since)
		}
		if holder {
			first = append(first, by)
		}
		if dead {
			first = append(first, cause)
		}
		return append(first, last...)
	}
	rows := [][]string{row([]string{"ID", "STATE", "PRIORITY", "ATTEMPTS", "AT"}, "KEY", "TYPE", "EXPIRES", "HELD FOR", "LEASED BY", "CAUSE", "LAST ERROR", "BODY")}
	for _, e := range list {
		first := []string{e.ID.String(), string(e.State), e.Priority.String(), strconv.Itoa(e.Attempts), clock(at(e))}
		rows = append(rows, row(first, brief(e.Key, 40), brief(e.Type, 40), clock(e.ExpiresAt), heldFor(e), holderName(e), e.Cause.String(), brief(e.LastError, 40), brief(string(e.Body), 60)))
	}
	return a.table(rows)
}

// at returns the relevant time of a state: the end of the lease or of the message, or its due time.
func at(e chanqadmin.Entry) time.Time {
	switch e.State {
	case chanqadmin.StateLeased:
		return e.LeaseUntil
	case chanqadmin.StateDead, chanqadmin.StateDone:
		return e.EndedAt
	}
	return e.DueAt
}

// heldFor returns how long a leased message has been held, by this machine's clock.
func heldFor(e chanqadmin.Entry) string {
	if e.HeldSince.IsZero() {
		return "-"
	}
	return max(time.Since(e.HeldSince).Round(time.Second), 0).String()
}

// holderName returns the holder's name, otherwise its ID: the name of a consumer is deleted after a
// day.
func holderName(e chanqadmin.Entry) string {
	switch {
	case e.LeasedBy != "":
		return brief(e.LeasedBy, 40)
	case !e.Consumer.IsZero():
		return e.Consumer.String()
	}
	return "-"
}

// clock formats a time for tables.
func clock(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

// brief returns at most n characters of a text, on one line and without terminal control characters.
func brief(s string, n int) string {
	if len(s) > 4*n+4 {
		s = s[:4*n+4]
	}
	shown := visible(strings.ToValidUTF8(s, "�"))
	if r := []rune(shown); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return shown
}

// count returns a number with its noun.
func count(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
