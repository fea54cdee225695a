package mssqltest

import (
	"strings"

	"github.com/chanq/chanq/mssqltest/engine"
	"github.com/chanq/chanq/mssqltest/tds"
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

// Request has the properties by which a fault selects requests.
type Request struct {
	Kind Kind
	Text string // of the batch, or of sp_executesql
}

// Is selects requests of some kinds.
func Is(kinds ...Kind) func(Request) bool {
	return func(r Request) bool {
		for _, k := range kinds {
			if r.Kind == k {
				return true
			}
		}
		return false
	}
}

// RequestOf returns the kind and text of a request of the wire.
func RequestOf(r *tds.Request) Request {
	switch {
	case r.Kind == tds.Batch:
		return Request{kindOf(r.Text), r.Text}
	case r.Kind == tds.Transaction:
		switch r.Tx.Op {
		case tds.TxBegin:
			return Request{Kind: Begin}
		case tds.TxCommit:
			return Request{Kind: Commit}
		case tds.TxRollback:
			return Request{Kind: Rollback}
		}
	case len(r.Params) > 0:
		if text, ok := r.Params[0].Value.(string); ok {
			return Request{kindOf(text), text}
		}
	}
	return Request{Kind: Other}
}

func statementOf(st engine.Statement) Request { return Request{kindOf(st.Text), st.Text} }

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
	{"FROM (VALUES (@m0, @k0, @h0, @b0)", Enqueue},
	{"attempts = q.attempts - 1,", Release},
	{"38 * (x.i + y.i)", Nack},
	{"39 * (x.i + y.i)", DeadLetter},
	{"@host", Join},
	{"[chanq__consumers] AS m WITH (ROWLOCK)", Leave},
	{"@delivered", Sample},
	{"@until", Extend},
	{"_done] (id", Archive},
	{"OUTPUT deleted.id, deleted.fence", Ack},
	{"DATALENGTH(@places)", Find},
	{"SELECT q.id, q.fence\n", Look},
}

func kindOf(text string) Kind {
	for _, m := range marks {
		if !strings.Contains(text, m.mark) {
			continue
		}
		if m.kind == Enqueue && strings.Contains(text, "NOT EXISTS") {
			return EnqueueNew
		}
		return m.kind
	}
	return Other
}
