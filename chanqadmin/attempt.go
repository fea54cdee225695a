package chanqadmin

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// Attempt is an attempt that failed, or whose lease expired. Times are by the database's clock.
type Attempt struct {
	// Started is when the handler was called, or for an expired lease when it was claimed. It and Took are zero if that is not known: without
	// Handle, and for expired leases of an ordered queue.
	Started time.Time     `json:"started_at,omitzero"`
	Ended   time.Time     `json:"ended_at"`
	Took    time.Duration `json:"-"`
	// LeasedBy has up to 60 characters of the name of the consumer. It is empty if the consumer is no longer known.
	LeasedBy string `json:"leased_by,omitempty"`
	Error    string `json:"error,omitempty"` // up to 300 characters
}

// MarshalJSON returns an object with times in UTC, and Took in seconds.
func (a Attempt) MarshalJSON() ([]byte, error) {
	type fields Attempt
	a.Ended = a.Ended.UTC()
	if !a.Started.IsZero() {
		a.Started = a.Started.UTC()
	}
	return json.Marshal(struct {
		fields
		Took float64 `json:"took_seconds,omitempty"`
	}{fields(a), a.Took.Seconds()})
}

// attemptsOf reads a history: see sqlbatch.MostHistory. It leaves out what is cut, or has another form.
func attemptsOf(history string) (list []Attempt) {
	for {
		entry, rest, whole := strings.Cut(history, "\x1e")
		if !whole {
			return list
		}
		history = rest
		head, text, _ := strings.Cut(entry, "\n")
		fields := strings.SplitN(head, " ", 3)
		if len(fields) < 3 {
			continue
		}
		ended, err1 := strconv.ParseInt(fields[0], 10, 64)
		took, err2 := strconv.ParseInt(fields[1], 10, 64)
		if err1 != nil || err2 != nil {
			continue
		}
		a := Attempt{Ended: time.UnixMilli(ended), LeasedBy: fields[2], Error: text}
		if took > 0 {
			a.Started, a.Took = a.Ended.Add(-time.Duration(took)*time.Millisecond), time.Duration(took)*time.Millisecond
		}
		list = append(list, a)
	}
}
