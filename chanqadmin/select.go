package chanqadmin

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/sqlbatch"
)

// Select selects the messages of State that match every other field that is set. Each call runs in steps that read a bounded part of
// an index. A call refuses a Select for which there is no such index, before it changes anything.
type Select struct {
	State State
	// IDs selects these messages; an empty slice that is not nil selects none. Only State may be set with it.
	IDs []chanq.ID
	// All selects all messages of State. A change refuses a Select that has only State and not All, so that an empty list of IDs
	// never changes all messages. List ignores it.
	All bool

	// Cause selects dead messages of a cause, and Fingerprint the messages of one of its groups: see Queue.Causes. To select one kind
	// of error use Group.Select. Fingerprint is 16 hexadecimal digits, or NoFingerprint, and needs Cause. List also compares it with the
	// live messages that have failed: see Queue.Failing.
	Cause       chanq.Cause
	Fingerprint string
	// Before selects dead and done messages that ended before this time, by the database's clock.
	Before time.Time

	// Type and Key select messages by Message.Type and, on an ordered queue, by Message.Key. They are not indexed: they are compared
	// for each message that the fields above select, 1,000 messages at a time. Only List and changes of dead messages support them.
	Type string
	Key  string
}

// NoFingerprint is the Select.Fingerprint of messages without a fingerprint.
const NoFingerprint = "none"

// LogValue returns the fields that are set; for IDs it returns their number.
func (s Select) LogValue() slog.Value {
	var attrs []slog.Attr
	for _, a := range []slog.Attr{
		slog.String("state", string(s.State)), slog.String("cause", s.Cause.String()), slog.String("fingerprint", s.Fingerprint),
		slog.String("type", s.Type), slog.String("key", s.Key),
	} {
		if a.Value.String() != "" {
			attrs = append(attrs, a)
		}
	}
	if !s.Before.IsZero() {
		attrs = append(attrs, slog.Time("before", s.Before))
	}
	if s.IDs != nil {
		attrs = append(attrs, slog.Int("ids", len(s.IDs)))
	}
	return slog.GroupValue(attrs...)
}

// String returns the fields that are set, and the first IDs.
func (s Select) String() string {
	text := strings.Trim(s.LogValue().String(), "[]")
	for _, id := range s.IDs[:min(len(s.IDs), 5)] {
		text += " " + id.String()
	}
	return text
}

// check returns the first error of a Select, or nil.
func (q *Queue) check(s *Select) error {
	if err := s.State.check(); err != nil {
		return err
	}
	switch fingerprint, err := strconv.ParseUint(s.Fingerprint, 16, 64); {
	case s.IDs != nil && (s.filtered() || s.All):
		return fmt.Errorf("Select.IDs has %d IDs: all other fields except State must be empty", len(s.IDs))
	case s.State != StateDead && s.Cause != 0:
		return fmt.Errorf("Select.Cause is %s: must be empty for %s messages, since only dead ones have a cause", s.Cause, s.State)
	case s.State == StateDone && s.Fingerprint != "":
		return fmt.Errorf("Select.Fingerprint is %.40q: must be empty for done messages, which have no fingerprint", s.Fingerprint)
	case s.State == StateDead && s.Fingerprint != "" && s.Cause == 0:
		return fmt.Errorf("Select.Fingerprint is %.40q without Select.Cause: set Cause, with which the index begins", s.Fingerprint)
	case s.Fingerprint != "" && s.Fingerprint != NoFingerprint && (err != nil || len(s.Fingerprint) != 16 || fingerprint == 0):
		return fmt.Errorf("Select.Fingerprint is %.40q: must be 16 hexadecimal digits or %q", s.Fingerprint, NoFingerprint)
	case s.State.live() && !s.Before.IsZero():
		return fmt.Errorf("Select.Before is %s: must be zero for %s messages, since only dead and done ones have ended", s.Before, s.State)
	case s.Key != "" && !q.ordered():
		return fmt.Errorf("Select.Key is %.40q: must be empty, since messages of a plain queue have no key", s.Key)
	}
	return nil
}

// checkChange returns an error if a change of the selection is not possible.
func (q *Queue) checkChange(s *Select) error {
	if err := q.check(s); err != nil {
		return err
	}
	if field, value := s.compared(); field != "" && s.State != StateDead {
		return fmt.Errorf("%s is %.40q: must be empty for changes of %s messages, since no index has it; List the messages, and select them by their IDs", field, value, s.State)
	}
	if s.IDs == nil && !s.All && !s.filtered() {
		return fmt.Errorf("Select has nothing but the state %s: set All for all messages of that state, or IDs", s.State)
	}
	return nil
}

// compared returns a field that is not indexed, and its value, or "" if none is set.
func (s *Select) compared() (field, value string) {
	switch {
	case s.Type != "":
		return "Select.Type", s.Type
	case s.State.live() && s.Fingerprint != "":
		return "Select.Fingerprint", s.Fingerprint
	case s.Key != "":
		return "Select.Key", s.Key
	}
	return "", ""
}

// filtered reports whether the Select may exclude messages of its state.
func (s *Select) filtered() bool {
	return s.Cause != 0 || s.Fingerprint != "" || !s.Before.IsZero() || s.Type != "" || s.Key != ""
}

// walked reports whether walks find the messages.
func (s *Select) walked() bool { return s.Cause != 0 || s.Type != "" || s.Key != "" }

// has reports whether the Select selects a message.
func (s *Select) has(e *Entry) bool {
	return e.State == s.State && (s.Cause == 0 || s.Cause == e.Cause) && (s.Fingerprint == "" || s.Fingerprint == fingerprintOf(e)) && s.like(e.Type, e.Key)
}

// like compares the fields that are not indexed.
func (s *Select) like(kind, key string) bool {
	return (s.Type == "" || s.Type == kind) && (s.Key == "" || s.Key == key)
}

// fingerprintOf returns "" for a live message that has not failed.
func fingerprintOf(e *Entry) string {
	switch number := base.Fingerprint(e.failure()); {
	case e.State.live() && len(e.History) == 0:
		return ""
	case e.State.live() && number != 0:
		return fmt.Sprintf("%016x", number)
	case e.Fingerprint == "":
		return NoFingerprint
	}
	return e.Fingerprint
}

// filter returns what the database compares of a list.
func (s *Select) filter() sqlbatch.Filter {
	f := sqlbatch.Filter{Type: s.Type, Key: s.Key, Cause: s.Cause}
	if s.Fingerprint != "" && !s.State.live() {
		g := s.group()
		f.Fingerprint = &g.Fingerprint
	}
	return f
}

// group returns the group of a Select with a Fingerprint.
func (s *Select) group() sqlbatch.Group {
	fingerprint, _ := strconv.ParseUint(s.Fingerprint, 16, 64) // 0 for NoFingerprint
	return sqlbatch.Group{Cause: s.Cause, Fingerprint: int64(fingerprint)}
}

// eachGroup calls do for each group of a Select, or once with nil if it has no Cause.
func (q *Queue) eachGroup(ctx context.Context, op string, s *Select, do func(*sqlbatch.Group) error) error {
	group := s.group()
	switch {
	case s.Cause == 0:
		return do(nil)
	case s.Fingerprint != "":
		return do(&group)
	}
	for after := (sqlbatch.Group{Cause: s.Cause - 1, Fingerprint: math.MaxInt64}); ; { // after all groups of the previous cause
		list, err := q.groups(ctx, op, after, groupsAtOnce, 1)
		if err != nil {
			return err
		}
		for _, g := range list {
			if g.Cause != s.Cause {
				return nil
			}
			after = g.group()
			if err := do(&after); err != nil {
				return err
			}
		}
		if len(list) == 0 { // on SQL Server a page may be short: groups end between its two reads
			return nil
		}
	}
}
