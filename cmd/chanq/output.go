package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/chanq/chanq"
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

// message is the JSON of one message. A body that is text is in Body, any other
// in BodyBase64.
type message struct {
	ID         chanq.ID          `json:"id"`
	State      chanq.State       `json:"state,omitempty"`
	Priority   string            `json:"priority"`
	Attempt    int               `json:"attempt"`
	Fence      int64             `json:"fence"`
	EnqueuedAt time.Time         `json:"enqueued_at"`
	At         *time.Time        `json:"at,omitempty"`
	ExpiresAt  *time.Time        `json:"expires_at,omitempty"`
	LeasedBy   string            `json:"leased_by,omitempty"` // the member's name, as long as it is known
	Member     *chanq.ID         `json:"member,omitempty"`
	DedupKey   string            `json:"dedup_key,omitempty"`
	LastError  string            `json:"last_error,omitempty"`
	Headers    map[string]string `json:"headers,omitempty"`
	Body       *string           `json:"body,omitempty"`
	BodyBase64 *string           `json:"body_base64,omitempty"`
}

func (m *message) setBody(body []byte) {
	if utf8.Valid(body) {
		s := string(body)
		m.Body = &s
		return
	}
	s := base64.StdEncoding.EncodeToString(body)
	m.BodyBase64 = &s
}

func entryMessage(e chanq.Entry) message {
	at := e.At.UTC()
	m := message{
		ID: e.ID, State: e.State, Priority: e.Priority.String(), Attempt: e.Attempts, Fence: e.Fence,
		EnqueuedAt: e.EnqueuedAt.UTC(), At: &at, LeasedBy: e.LeasedBy, DedupKey: e.DedupKey,
		LastError: e.LastError, Headers: e.Headers,
	}
	if !e.ExpiresAt.IsZero() {
		expires := e.ExpiresAt.UTC()
		m.ExpiresAt = &expires
	}
	if !e.Member.IsZero() {
		m.Member = &e.Member
	}
	m.setBody(e.Body)
	return m
}

func leaseMessage(l *chanq.Lease[[]byte]) message {
	m := message{
		ID: l.ID, Priority: l.Priority.String(), Attempt: l.Attempt, Fence: l.Fence, EnqueuedAt: l.EnqueuedAt.UTC(),
		DedupKey: l.DedupKey, Headers: l.Headers,
	}
	m.setBody(l.Body)
	return m
}

// entries writes stored messages.
func (a *app) entries(list []chanq.Entry) error {
	if a.output == "json" {
		for _, e := range list {
			if err := a.json(entryMessage(e)); err != nil {
				return err
			}
		}
		return nil
	}
	// Columns that few messages have stand there if one has.
	expiry := slices.ContainsFunc(list, func(e chanq.Entry) bool { return !e.ExpiresAt.IsZero() })
	holder := slices.ContainsFunc(list, func(e chanq.Entry) bool { return !e.Member.IsZero() })
	row := func(first []string, expires, by string, last ...string) []string {
		if expiry {
			first = append(first, expires)
		}
		if holder {
			first = append(first, by)
		}
		return append(first, last...)
	}
	rows := [][]string{row([]string{"ID", "STATE", "PRIORITY", "ATTEMPTS", "AT"}, "EXPIRES", "LEASED BY", "LAST ERROR", "BODY")}
	for _, e := range list {
		first := []string{e.ID.String(), string(e.State), e.Priority.String(), strconv.Itoa(e.Attempts), clock(e.At)}
		rows = append(rows, row(first, clock(e.ExpiresAt), whose(e), brief(e.LastError, 40), brief(string(e.Body), 60)))
	}
	return a.table(rows)
}

// whose is the holder's name, or else its ID: a member is forgotten after a day.
func whose(e chanq.Entry) string {
	switch {
	case e.LeasedBy != "":
		return brief(e.LeasedBy, 40)
	case !e.Member.IsZero():
		return e.Member.String()
	}
	return "-"
}

// clock is a time as tables show it.
func clock(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

// brief is at most n characters of a text, on one line and without anything that
// a terminal would obey.
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

// count says how many, of what.
func count(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
