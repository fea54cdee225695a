package sqlbatch_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/sqlbatch"
)

// hostile is what a value must not be able to say to a database.
const hostile = "H0STILE'; DROP TABLE chanq_orders; --\"]]\x00`$$ {live} {name} @p1 $1 ?1"

// callsWith is every statement of a queue with values made of one text.
func callsWith(q sqlbatch.Queue, value string) map[string]sqlbatch.Statement {
	var id [16]byte
	copy(id[:], value)
	item := sqlbatch.Item{ID: id, Fence: int64(len(value))}
	row := sqlbatch.Row{ID: id, Priority: 1, Delay: time.Duration(len(value)), TTL: time.Hour, Key: value, Headers: []byte(value), Body: []byte(value)}
	calls := map[string]sqlbatch.Statement{
		"enqueue":     q.Enqueue([]sqlbatch.Row{row}),
		"enqueue-new": q.EnqueueNew([]sqlbatch.Row{row}),
		"find":        q.Find([][16]byte{id}, []string{value}),
		"look":        q.Look([][16]byte{id}),
		"next-due":    q.NextDue(),
		"ack":         q.Ack([]sqlbatch.Item{item}),
		"archive":     q.Archive([]sqlbatch.Item{item}),
		"nack":        q.Nack([]sqlbatch.NackItem{{Item: item, Delay: time.Duration(len(value)), Error: value}}),
		"release":     q.Release([]sqlbatch.ReleaseItem{{Item: item, Due: int64(len(value))}}),
		"bury":        q.Bury([]sqlbatch.BuryItem{{Item: item, Error: value}}),
		"extend":      q.Extend([]sqlbatch.Item{item}, time.Duration(len(value))),
		"end-after":   q.EndAfter([]sqlbatch.Item{item}, time.Duration(len(value))),
		"problems":    q.Problems(),
		"clock":       q.Clock(),
		"join":        q.Join(sqlbatch.Member{ID: id, Name: value, Host: value, Process: len(value), For: time.Duration(len(value))}),
		"leave":       q.Leave(id),
		"members":     q.Members(),
		"record":      q.Record(len(value)),
		"stats":       q.Stats(len(value)),
		"get":         q.Get(id),
		"cancel":      q.Cancel([][16]byte{id}),
		"redrive":     q.Redrive(len(value), nil, sqlbatch.Window{Before: int64(len(value))}),
		"redrive-ids": q.Redrive(0, [][16]byte{id}, sqlbatch.Window{}),
		"trim":        q.Trim(time.Duration(len(value)), len(value), int64(len(value))),
	}
	for _, order := range []sqlbatch.Order{sqlbatch.FIFO, sqlbatch.OrderAny} {
		p := sqlbatch.ClaimParams{Rows: len(value), Lease: time.Duration(len(value)), Member: id, Salt: int64(len(value)), Order: order}
		calls[fmt.Sprint("claim ", order)] = q.Claim(p)
		p.Blind = true
		calls[fmt.Sprint("claim blind ", order)] = q.Claim(p)
	}
	for _, s := range postgresStates {
		calls["peek "+string(s)] = q.Peek(s, len(value))
		calls["purge "+string(s)] = q.Purge(s, len(value), sqlbatch.Window{Before: int64(len(value))})
	}
	return calls
}

// textsOf is all of a statement that a database reads as SQL: sp_executesql's text
// and declaration are arguments.
func textsOf(st sqlbatch.Statement) []string {
	var texts []string
	for _, prior := range st.Prior {
		texts = append(texts, textsOf(prior)...)
	}
	texts = append(texts, st.Text)
	if st.Text == "sp_executesql" {
		for _, arg := range st.Args[:min(2, len(st.Args))] {
			texts = append(texts, arg.(string))
		}
	}
	return texts
}

func TestNoValueIsEverPartOfAText(t *testing.T) {
	for _, d := range []sqlbatch.Dialect{sqlbatch.SQLServer, sqlbatch.Postgres, sqlbatch.SQLite} {
		for _, q := range []sqlbatch.Queue{d.Queue(orders), d.Queue(orders).InTx(), d.Queue(orders).SkipLocked(), d.Queue(orders).InTx().SkipLocked()} {
			plain, odd := callsWith(q, "a"), callsWith(q, hostile)
			for name := range plain {
				texts := textsOf(odd[name])
				require.Equal(t, textsOf(plain[name]), texts, "%s %s: the text depends on its values", d.Name(), name)
				for _, text := range texts {
					require.NotContains(t, strings.ToUpper(text), "H0STILE", "%s %s", d.Name(), name)
				}
			}
		}
	}
}

// What hostile values do to a database: nothing. PostgreSQL and SQL Server are
// asked in the conformance suite and the stand-in's tests.
func TestHostileValuesAreStoredAsTheyAre(t *testing.T) {
	table := newSQLiteTable(t, sqlbatch.Names{Queue: "orders"})
	calls := callsWith(table.q, hostile)
	table.run(calls["enqueue"])
	got := table.run(calls["get"])
	require.Len(t, got, 1)
	require.Equal(t, hostile, bytesOrNone(got[0][12]))
	require.Equal(t, hostile, bytesOrNone(got[0][13]))
	delete(calls, "enqueue") // a second time it is a duplicate
	for _, st := range calls {
		for _, prior := range st.Prior {
			table.run(prior)
		}
		table.run(st)
	}
	require.NotEmpty(t, table.run(sqlbatch.Statement{Text: "SELECT count(*) FROM chanq_orders"}), "the table is there")
}
