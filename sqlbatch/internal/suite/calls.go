// Package suite is what the tests of all engines of sqlbatch share.
package suite

import (
	"fmt"
	"time"

	"github.com/chanq/chanq/sqlbatch"
)

// States are the states of a stored message.
var States = []sqlbatch.State{sqlbatch.Ready, sqlbatch.Scheduled, sqlbatch.Leased, sqlbatch.Dead, sqlbatch.Done}

// Hostile is what a value must not be able to say to a database.
const Hostile = "H0STILE'; DROP TABLE chanq_orders; --\"]]\x00`$$ {live} {name} @p1 $1 ?1"

// Calls is every statement of a queue with values made of one text.
func Calls(q sqlbatch.Queue, value string) map[string]sqlbatch.Statement {
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
	for _, s := range States {
		calls["peek "+string(s)] = q.Peek(s, len(value))
		calls["purge "+string(s)] = q.Purge(s, len(value), sqlbatch.Window{Before: int64(len(value))})
	}
	return calls
}

// Texts is all of a statement that a database reads as SQL: sp_executesql's text
// and declaration are arguments.
func Texts(st sqlbatch.Statement) []string {
	var texts []string
	for _, prior := range st.Prior {
		texts = append(texts, Texts(prior)...)
	}
	texts = append(texts, st.Text)
	if st.Text == "sp_executesql" {
		for _, arg := range st.Args[:min(2, len(st.Args))] {
			texts = append(texts, arg.(string))
		}
	}
	return texts
}

// OddSchemas are names that a text must quote.
var OddSchemas = []string{"dbo", "]", "]]", "a]b", "[", "'", "a'b", `"`, "a b", "{live}", "{rows}", "~", "--", "a\nb", "a;b", "é", "]; DROP TABLE t; --"}
