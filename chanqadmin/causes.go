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
	// Minutes counts those that died in each of the last 60 minutes, the last minute at the end. Of a queue with more deaths in this hour
	// it counts the last GroupLimit. It is for dead messages.
	Minutes [60]int `json:"-"`
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

// death is the end of a dead message, some minutes ago.
type death struct {
	sqlbatch.Group
	ago int
}

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
// locks that block other statements. It costs one round trip per 100 groups, and two more.
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
	minutes := map[sqlbatch.Group]*[60]int{}
	for i := range all {
		minutes[all[i].group()] = &all[i].Minutes
	}
	deaths, err := collect(ctx, q, "causes", q.sql.Deaths(GroupLimit), func(rows *sql.Rows) (d death, err error) {
		var fingerprint sql.NullInt64
		err = rows.Scan(&d.Cause, &fingerprint, &d.ago)
		d.Fingerprint = fingerprint.Int64
		return d, err
	})
	if err != nil {
		return Causes{}, err
	}
	for _, d := range deaths {
		if of := minutes[d.Group]; of != nil { // otherwise it is a new group
			of[59-min(max(d.ago, 0), 59)]++
		}
	}
	more := len(all) > MostGroups
	all = all[:min(len(all), MostGroups)]
	slices.SortFunc(all, func(a, b Group) int {
		return cmp.Or(cmp.Compare(a.Cause, b.Cause), cmp.Compare(a.Fingerprint, b.Fingerprint))
	})
	return Causes{all, more}, nil
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
