package chanqadmin

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/sqlbatch"
)

// Search is what Queue.Search looks for.
type Search struct {
	// Text is the ID, Key, DedupKey or Type of the messages, or a part of LastError, or of a header as name=value. Range: 1 to 2,000 bytes
	// of UTF-8 without NUL.
	Text string
	// After is the token of the previous page. Default: "", from the beginning.
	After PageToken
	// Limit is the most messages of a page. Default: 20. Range: 1 to 1,000 (MostListed).
	Limit int
	// Within is how long a call searches. Default: 2 s.
	Within time.Duration
	// Conceal removes from a message what is neither to be searched nor to be returned. To be searched, a message has only its ID, Key,
	// DedupKey, Type, LastError and Headers. Default: none.
	Conceal func(*Entry)

	id chanq.ID // that Text is
}

// MostSearched is the most bytes of Search.Text.
const MostSearched = sqlbatch.MaxError

const (
	defaultFound  = 20
	defaultWithin = 2 * time.Second
)

// searched are the tables that a search reads, in this order.
var searched = []string{"live", "dead", "done"}

// searchText reads messages from the latest ID on, in steps, by the index of IDs. On SQL Server it passes those that are locked.
const searchText = `SELECT {top}q.id, q.dedup_key, q.type, q.last_error, q.headers, {key} FROM {table} AS q{hints} WHERE q.id < ?1 ORDER BY q.id DESC{limit}`

// Search returns the messages with a text, in all states, one page per call, without their bodies and without claiming them. It begins with the
// ID and the DedupKey, which are indexed. Then it reads all messages, live ones first, the latest IDs first, until the page is full or the
// time Within is over. Page.Next says how to go on: it is "" if all messages were read. Page.Looked is how many were read; Stats estimates
// of how many.
//
// Bodies are not searched. SQL Server leaves out messages that are locked at that moment. Each step of 1,000 messages is a round trip, and so is
// each message that is found. The connection is free between them.
func (q *Queue) Search(ctx context.Context, s Search) (Page, error) {
	s.Limit, s.Within = cmp.Or(s.Limit, defaultFound), cmp.Or(s.Within, defaultWithin)
	if s.Conceal == nil {
		s.Conceal = func(*Entry) {}
	}
	table, from, err := s.place()
	switch {
	case len(s.Text) == 0 || len(s.Text) > MostSearched || !utf8.ValidString(s.Text) || strings.ContainsRune(s.Text, 0):
		return Page{}, q.refuse("search", "Search.Text has %d bytes: must be 1 to %d bytes of UTF-8 without NUL", len(s.Text), MostSearched)
	case s.Limit < 1 || s.Limit > MostListed:
		return Page{}, q.refuse("search", "Search.Limit is %d: must be from 1 to %d", s.Limit, MostListed)
	case s.Within < 0:
		return Page{}, q.refuse("search", "Search.Within is %v: must be 0 (2 s) or more", s.Within)
	case err != nil:
		return Page{}, q.refuse("search", "%w", err)
	}
	began := time.Now()
	within, cancel := context.WithTimeout(ctx, s.Within)
	defer cancel()
	var page Page
	var ids []chanq.ID
	if s.After == "" {
		if ids, err = q.indexed(within, &s); err == nil {
			page.Entries, err = q.foundByID(within, ids, &s)
		}
		if err != nil || len(page.Entries) > 0 && page.Entries[0].ID == s.id {
			return page, err
		}
	}
	ids = nil
	for time.Since(began) < s.Within && len(page.Entries)+len(ids) < s.Limit {
		step, err := q.searchStep(within, searched[table], from, &s, s.Limit-len(page.Entries)-len(ids))
		if err != nil && within.Err() != nil && ctx.Err() == nil && page.Looked > 0 {
			break // the next page begins with this step
		}
		if err != nil {
			return Page{}, err
		}
		ids, page.Looked = append(ids, step.ids...), page.Looked+step.looked
		if from = step.last; step.looked == stepRows || len(step.ids) > 0 {
			continue
		}
		if table, from = table+1, lastID; table == len(searched) {
			break
		}
	}
	if table < len(searched) {
		page.Next = PageToken(searched[table] + "." + from.String())
	}
	found, err := q.foundByID(ctx, ids, &s)
	page.Entries = append(page.Entries, found...)
	return page, err
}

// lastID is behind all IDs.
var lastID = chanq.ID{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}

// place returns the table and the ID with which a search goes on.
func (s *Search) place() (table int, from chanq.ID, err error) {
	if s.After == "" {
		return 0, lastID, nil
	}
	name, text, _ := strings.Cut(string(s.After), ".")
	for table = range searched {
		if searched[table] == name {
			from, err = chanq.ParseID(text)
			break
		}
		err = errors.New("no table")
	}
	if err != nil {
		err = fmt.Errorf("page token %.100q: must be \"\", or the Next of a Page of Search", string(s.After))
	}
	return table, from, err
}

// indexed returns the IDs that the messages might have, by an index.
func (q *Queue) indexed(ctx context.Context, s *Search) (ids []chanq.ID, err error) {
	if s.id, err = chanq.ParseID(s.Text); err == nil {
		ids = append(ids, s.id)
	}
	if len(s.Text) > sqlbatch.MaxKey {
		return ids, nil
	}
	found, err := q.Find(ctx, s.Text)
	return append(ids, found...), err
}

// foundByID returns the messages with these IDs that exist and have the text.
func (q *Queue) foundByID(ctx context.Context, ids []chanq.ID, s *Search) (list []Entry, err error) {
	for _, id := range ids {
		e, err := q.GetPart(ctx, id, 0, 0)
		switch {
		case errors.Is(err, chanq.ErrNotFound):
			continue
		case err != nil:
			return list, err
		}
		if s.Conceal(&e); e.ID == s.id || e.has(s.Text) {
			list = append(list, e)
		}
	}
	return list, nil
}

// searchedStep is what a step of a search has read.
type searchedStep struct {
	ids    []chanq.ID
	looked int
	last   chanq.ID
}

// searchStep reads up to stepRows messages of a table, with IDs below one, up to the last of those that are looked for.
func (q *Queue) searchStep(ctx context.Context, table string, from chanq.ID, s *Search, most int) (step searchedStep, err error) {
	key, hints := "NULL AS order_key", ""
	if q.ordered() {
		key = "q.order_key"
	}
	arg := any(from[:])
	switch q.dialect.Name() {
	case string(chanq.DialectPostgres):
		arg = from.String()
	case string(chanq.DialectSQLServer):
		hints = " WITH (READPAST, READCOMMITTEDLOCK, FORCESEEK)"
	}
	text := strings.NewReplacer("{key}", key, "{table}", "{"+table+"}", "{hints}", hints).Replace(searchText)
	st := sqlbatch.Statement{Text: limited(q.dialect, namesOf(q.Name(), q.cfg), text, stepRows), Args: []any{arg}}
	err = q.repeat(ctx, st, func() { step = searchedStep{last: from} }, func(rows *sql.Rows) error {
		var e Entry
		var dedup, kind, failure, headers, line sql.RawBytes
		if err := rows.Scan(&e.ID, &dedup, &kind, &failure, &headers, &line); err != nil || len(step.ids) == most {
			return err
		}
		step.looked, step.last = step.looked+1, e.ID
		e.DedupKey, e.Type, e.LastError, e.Key, e.Headers = string(dedup), string(kind), string(failure), string(line), headersOf(headers)
		s.Conceal(&e)
		if e.has(s.Text) && (table != "live" || e.DedupKey != s.Text) { // which the index has found
			step.ids = append(step.ids, e.ID)
		}
		return nil
	})
	return step, q.fail("search", err)
}

// has reports whether a search for a text finds the message.
func (e *Entry) has(text string) bool {
	if e.Key == text || e.DedupKey == text || e.Type == text || strings.Contains(e.LastError, text) {
		return true
	}
	for name, value := range e.Headers {
		if strings.Contains(name+"="+value, text) {
			return true
		}
	}
	return false
}
