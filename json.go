package chanq

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"
)

// statsJSON is Stats in JSON.
type statsJSON struct {
	Ready       int    `json:"ready"`
	Scheduled   int    `json:"scheduled"`
	Leased      int    `json:"leased"`
	Dead        int    `json:"dead"`
	Done        int    `json:"done"`
	Limit       int    `json:"limit"`
	OldestReady string `json:"oldest_ready"`
	Paused      bool   `json:"paused"`
}

// MarshalJSON makes an object with names such as oldest_ready, a duration such as
// "1m30s". UnmarshalJSON reads it.
func (s Stats) MarshalJSON() ([]byte, error) {
	return json.Marshal(statsJSON{s.Ready, s.Scheduled, s.Leased, s.Dead, s.Done, s.Limit, s.OldestReady.String(), s.Paused})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (s *Stats) UnmarshalJSON(text []byte) error {
	var j statsJSON
	if err := json.Unmarshal(text, &j); err != nil {
		return err
	}
	oldest, err := time.ParseDuration(j.OldestReady)
	if err != nil {
		return err
	}
	*s = Stats{j.Ready, j.Scheduled, j.Leased, j.Dead, j.Done, j.Limit, oldest, j.Paused}
	return nil
}

// entryJSON is Entry in JSON. A body that is text is in Body, any other in BodyBase64.
type entryJSON struct {
	ID         ID                `json:"id"`
	State      State             `json:"state"`
	Priority   string            `json:"priority"`
	Attempts   int               `json:"attempt"`
	Fence      int64             `json:"fence"`
	EnqueuedAt time.Time         `json:"enqueued_at"`
	DueAt      *time.Time        `json:"due_at,omitempty"`
	LeaseUntil *time.Time        `json:"lease_until,omitempty"`
	EndedAt    *time.Time        `json:"ended_at,omitempty"`
	ExpiresAt  *time.Time        `json:"expires_at,omitempty"`
	LeasedBy   string            `json:"leased_by,omitempty"`
	Member     *ID               `json:"member,omitempty"`
	DedupKey   string            `json:"dedup_key,omitempty"`
	Key        string            `json:"key,omitempty"`
	Slot       int               `json:"slot,omitempty"`
	Seq        int64             `json:"seq,omitempty"`
	LastError  string            `json:"last_error,omitempty"`
	Headers    map[string]string `json:"headers,omitempty"`
	Body       *string           `json:"body,omitempty"`
	BodyBase64 []byte            `json:"body_base64,omitempty"`
}

// times are those that not every entry has.
func (j *entryJSON) times(e *Entry) map[*time.Time]**time.Time {
	return map[*time.Time]**time.Time{&e.DueAt: &j.DueAt, &e.LeaseUntil: &j.LeaseUntil, &e.EndedAt: &j.EndedAt, &e.ExpiresAt: &j.ExpiresAt}
}

// MarshalJSON makes an object with names such as enqueued_at, priorities by name, times in
// UTC, and without what the message does not have. A body that is text is a string in
// body, any other is in body_base64. UnmarshalJSON reads it.
func (e Entry) MarshalJSON() ([]byte, error) {
	j := entryJSON{
		ID: e.ID, State: e.State, Priority: e.Priority.String(), Attempts: e.Attempts, Fence: e.Fence,
		EnqueuedAt: e.EnqueuedAt.UTC(), LeasedBy: e.LeasedBy, DedupKey: e.DedupKey, Key: e.Key, Slot: e.Slot, Seq: e.seq,
		LastError: e.LastError, Headers: e.Headers,
	}
	for from, to := range j.times(&e) {
		if !from.IsZero() {
			utc := from.UTC()
			*to = &utc
		}
	}
	if !e.Member.IsZero() {
		j.Member = &e.Member
	}
	if utf8.Valid(e.Body) {
		body := string(e.Body)
		j.Body = &body
	} else {
		j.BodyBase64 = e.Body
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // whoever encodes the whole says whether
	err := encoder.Encode(j)
	return text.Bytes(), err
}

// UnmarshalJSON reads what MarshalJSON writes: the same entry, its times in UTC, which
// PeekAfter takes too.
func (e *Entry) UnmarshalJSON(text []byte) error {
	var j entryJSON
	if err := json.Unmarshal(text, &j); err != nil {
		return err
	}
	priorities := []Priority{PriorityLow, PriorityNormal, PriorityHigh, PriorityUrgent}
	at := slices.IndexFunc(priorities, func(p Priority) bool { return p.String() == j.Priority })
	if at < 0 {
		return fmt.Errorf("priority %q: must be low, normal, high or urgent", j.Priority)
	}
	*e = Entry{
		ID: j.ID, State: j.State, Priority: priorities[at], Attempts: j.Attempts, Fence: j.Fence,
		EnqueuedAt: j.EnqueuedAt, LeasedBy: j.LeasedBy, DedupKey: j.DedupKey, Key: j.Key, Slot: j.Slot, seq: j.Seq,
		LastError: j.LastError, Headers: j.Headers, Body: j.BodyBase64,
	}
	for to, from := range j.times(e) {
		if *from != nil {
			*to = **from
		}
	}
	if j.Member != nil {
		e.Member = *j.Member
	}
	if j.Body != nil {
		e.Body = []byte(*j.Body)
	}
	return nil
}
