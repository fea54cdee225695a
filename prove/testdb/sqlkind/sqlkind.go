// Package sqlkind tells chanq's statements to SQL Server apart by their text, so that a test can fault or count those of one
// kind.
package sqlkind

import (
	"slices"
	"strings"

	"github.com/chanq/chanq/mssqltest"
)

// Kind is the kind of chanq's statement in a request.
type Kind string

// The kinds. In a transaction of the caller they are the same.
const (
	Enqueue    Kind = "enqueue"
	EnqueueNew Kind = "keyed enqueue"
	Find       Kind = "find"
	Look       Kind = "look"
	Claim      Kind = "claim"
	Rescue     Kind = "rescue"
	Contents   Kind = "contents"
	NextDue    Kind = "next due"
	Rescan     Kind = "rescan"
	Watch      Kind = "watch"
	Ack        Kind = "ack"
	Archive    Kind = "archive"
	Nack       Kind = "nack"
	Release    Kind = "release"
	DeadLetter Kind = "dead-letter"
	Extend     Kind = "extend"
	Join       Kind = "join"
	Leave      Kind = "leave"
	Sample     Kind = "sample"
	Ping       Kind = "ping" // from the driver
	Begin      Kind = "begin"
	Commit     Kind = "commit"
	Rollback   Kind = "rollback"
	Other      Kind = "other"
)

// Is selects requests of some kinds, for a fault.
func Is(kinds ...Kind) func(mssqltest.Request) bool {
	return func(r mssqltest.Request) bool { return slices.Contains(kinds, Of(r)) }
}

// marks distinguish chanq's statements: the first mark that a text contains decides.
var marks = []struct {
	mark string
	kind Kind
}{
	{"select 1;", Ping},
	{"WAITFOR DELAY @every", Watch},
	{"@at_ms", Rescue},
	{"SELECT q.dedup_key, q.type, q.headers, q.body\n", Contents},
	{"leased_by = @by", Claim},
	{"AS due_in_ms", NextDue},
	{"AS due_in,", Rescan},
	{"FROM (VALUES (@i,0,", Enqueue},
	{"attempts = q.attempts - 1,", Release},
	{"42 * (x.i + y.i)", Nack},
	{"43 * (x.i + y.i)", DeadLetter},
	{"@host", Join},
	{"[chanq__consumers] AS m WITH (ROWLOCK)", Leave},
	{"@delivered", Sample},
	{"@until", Extend},
	{"_done] (id", Archive},
	{"OUTPUT deleted.id, deleted.fence", Ack},
	{"DATALENGTH(@places)", Find},
	{"SELECT q.id, q.fence\n", Look},
}

// Of returns the kind of a request.
func Of(r mssqltest.Request) Kind {
	switch r.Text {
	case "BEGIN TRANSACTION":
		return Begin
	case "COMMIT":
		return Commit
	case "ROLLBACK":
		return Rollback
	}
	for _, m := range marks {
		if !strings.Contains(r.Text, m.mark) {
			continue
		}
		if m.kind == Enqueue && strings.Contains(r.Text, "NOT EXISTS") {
			return EnqueueNew
		}
		return m.kind
	}
	return Other
}
