package chanqadmin

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/sqlbatch"
)

// Group has the dead messages of one cause, or the messages that wait for a retry, whose errors have the same fingerprint: errors that differ
// only in numbers, identifiers or quoted parts.
type Group struct {
	Cause       chanq.Cause `json:"cause,omitzero"`
	Fingerprint string      `json:"fingerprint"` // 16 hexadecimal digits, or NoFingerprint
	// Messages is their number, exact below GroupLimit. If More is set, there are GroupLimit or more.
	Messages int  `json:"messages"`
	More     bool `json:"more,omitempty"`
	// First and Last are the earliest and the latest end of these messages.
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
	// Example is the message that ended last, and LastError its error.
	Example   chanq.ID `json:"example"`
	LastError string   `json:"last_error,omitempty"`
}

// Select returns the selection of the group's messages.
func (g Group) Select() Select {
	s := Select{State: StateDead, Cause: g.Cause, Fingerprint: g.Fingerprint}
	if g.Cause == 0 {
		s.State = StateScheduled
	}
	return s
}

func (g Group) group() sqlbatch.Group {
	s := g.Select()
	return s.group()
}

// RedactedError returns LastError as Entry.RedactedError does.
func (g Group) RedactedError() string { return (&Entry{LastError: g.LastError}).RedactedError() }

// Causes has the groups of a queue's dead messages, by cause and fingerprint.
type Causes struct {
	Groups []Group `json:"groups"`
	More   bool    `json:"more"` // there are more than MostGroups
}

const (
	// GroupLimit bounds Group.Messages.
	GroupLimit = 10_000
	// MostGroups bounds Causes.Groups.
	MostGroups = 1000

	groupsAtOnce = 100
)

// Causes returns the reasons why messages are dead: the groups of the dead messages, by cause and fingerprint, up to MostGroups. It
// seeks each group in an index and counts at most GroupLimit entries of it, so the cost does not grow with larger groups. It takes no
// locks that block other statements. It costs one round trip per 100 groups, and one more.
func (q *Queue) Causes(ctx context.Context) (Causes, error) {
	all := []Group{} // not null in JSON
	for after := (sqlbatch.Group{}); len(all) <= MostGroups; {
		list, err := q.groups(ctx, "causes", after, groupsAtOnce, GroupLimit)
		if err != nil {
			return Causes{}, err
		}
		if all = append(all, list...); len(list) == 0 { // on SQL Server a page may be short: groups end between its two reads
			break
		}
		after = list[len(list)-1].group()
	}
	more := len(all) > MostGroups
	all = all[:min(len(all), MostGroups)]
	slices.SortFunc(all, func(a, b Group) int {
		return cmp.Or(cmp.Compare(a.Cause, b.Cause), cmp.Compare(a.Fingerprint, b.Fingerprint))
	})
	return Causes{all, more}, nil
}

// Deaths has how many messages died in each of the last 60 minutes, by their group.
type Deaths struct {
	More    bool // there were more than the last GroupLimit, which it counts
	minutes map[sqlbatch.Group]*[60]int
}

// Of returns the deaths of a group in each minute, the last minute at the end.
func (d Deaths) Of(g Group) (minutes [60]int) {
	if of := d.minutes[g.group()]; of != nil {
		minutes = *of
	}
	return minutes
}

// Deaths counts the dead messages that ended within an hour, up to GroupLimit of them. It costs one round trip, and takes no locks that block
// other statements.
func (q *Queue) Deaths(ctx context.Context) (Deaths, error) {
	n, all := 0, Deaths{}
	begin := func() { n, all.minutes = 0, map[sqlbatch.Group]*[60]int{} }
	err := q.repeat(ctx, q.sql.Deaths(GroupLimit), begin, func(rows *sql.Rows) error {
		var g sqlbatch.Group
		var fingerprint sql.NullInt64
		var ago int
		err := rows.Scan(&g.Cause, &fingerprint, &ago)
		if g.Fingerprint = fingerprint.Int64; all.minutes[g] == nil {
			all.minutes[g] = new([60]int)
		}
		n++
		all.minutes[g][59-min(max(ago, 0), 59)]++
		return err
	})
	all.More = n >= GroupLimit
	return all, q.fail("deaths", err)
}

func (q *Queue) groups(ctx context.Context, op string, after sqlbatch.Group, groups, limit int) ([]Group, error) {
	return collect(ctx, q, op, q.sql.Causes(after, groups, limit), func(rows *sql.Rows) (g Group, err error) {
		var id []byte
		var fingerprint sql.NullInt64
		var first, last int64
		var text sql.NullString
		err = rows.Scan(&g.Cause, &fingerprint, &g.Messages, &first, &last, &id, &text)
		copy(g.Example[:], id)
		if g.Fingerprint = NoFingerprint; fingerprint.Valid {
			g.Fingerprint = fmt.Sprintf("%016x", uint64(fingerprint.Int64))
		}
		g.More, g.First, g.Last, g.LastError = g.Messages >= limit, time.UnixMilli(first).UTC(), time.UnixMilli(last).UTC(), text.String
		return g, err
	})
}

// ParseCause returns the cause with this String: exhausted, rejected, expired, undecodable, unreadable, killed or output.
func ParseCause(word string) (chanq.Cause, error) {
	var words []string
	for c := chanq.CauseExhausted; c <= chanq.CauseOutput; c++ {
		if words = append(words, c.String()); c.String() == word {
			return c, nil
		}
	}
	return 0, fmt.Errorf("cause %.40q: must be one of %s", word, strings.Join(words, ", "))
}
