package main

import (
	"fmt"
	"strings"
)

// question is one thing that must be verified on Microsoft's engine before chanq can be called verified there.
type question struct {
	title string   // in the report
	text  string   // in the documentation, in Markdown
	parts []string // of the report that answer it; none: this command does not ask it
	rows  string   // only those of their rows that have it; "": all
}

// questions is the list "To be verified first on Microsoft's engine" of docs/internals/sqlserver-inside.md, and of the report.
var questions = []question{
	{"The tests pass",
		"The tests themselves, with row versions off and on, and with optimized locking.",
		[]string{"suite"}, ""},
	{"The rules hold",
		"The rules of locks, hints, errors and settings that the emulator implements. Each of its behaviours is compared with the server's.",
		[]string{"behaviours"}, ""},
	{"Plans",
		"The plan of the claim: a seek of `IX_…_due`, a key look-up, one seek of the primary key, no sort, no scan. Whether " +
			"there is an eager spool between the rows that are found and the update, whether it holds bodies, and its cost. " +
			"Never 8622, nor for the settles with `INDEX` and `FORCESEEK` on the joined target. Whether the look-up prefetches. " +
			"Then the shared locks on the entries of the walk, not those on rows, last until the statement for that priority ends " +
			"([Craig Freedman](https://learn.microsoft.com/en-us/archive/blogs/craigfr/read-committed-and-bookmark-lookup)). An " +
			"ack or a nack of a message that the walk passes would wait that long. The same for all other statements. The " +
			"compilation of an enqueue of 512 rows, and that it sorts no bodies. For keyed enqueues, that there is no spool, and what " +
			"the table variable costs a send of one message.",
		[]string{"plans"}, ""},
	{"Locks",
		"The locks that each statement keeps: as many, on the same indexes, in the same modes as on the emulator.",
		[]string{"locks"}, ""},
	{"Optimized locking",
		"`READPAST` with optimized locking (Azure SQL, SQL Server 2025): two claims, an uncommitted enqueue and an uncommitted " +
			"ack; a settle that meets a locked row. It is not documented that rows guarded only by another transaction's TID lock " +
			"are skipped.",
		[]string{"behaviours", "suite"}, "optimized"},
	{"Deadlocks",
		"No deadlock of two of chanq's own statements, in the tests and under load.",
		[]string{"deadlocks"}, ""},
	{"Reads do not grow",
		"Reads per message after ten minutes of load, when deleted entries wait for the ghost cleanup at the beginning of the " +
			"index: with a head they should not increase. One plan per statement for all lengths of values.",
		[]string{"load"}, "per message over"},
	{"Programs",
		"The documented rights suffice. The command and the web UI work. Nothing is lost while processes are killed.",
		[]string{"programs"}, ""},
	{"An attention in a claim",
		"An attention in the middle of a claim: the rows keep their former `lease_until`.",
		nil, ""},
	{"Delayed durability",
		"Delayed durability: the latency of an ack with and without it.",
		nil, ""},
	{"A failover",
		"The error numbers of a real failover, and that connections get 40613 or a reset, as the emulator simulates it.",
		nil, ""},
	{"The notifier",
		"`mssqlnotify`: its tests pass. Processor time of a request and of a poll, latency, the real duration of " +
			"`WAITFOR DELAY '00:00:00.005'`, and that a poll is four seeks that stop at the first row.",
		[]string{"suite"}, "notifier"},
	{"Ordered queues",
		"Ordered queues: the plan of the claim from slots, whose two parallel walks should seek the same range row by row and " +
			"sort nothing. The cost of `NO CACHE` for a sender, 1222 within `TRY`, and `current_value` immediately after another " +
			"session has drawn a number. That a walk with `READUNCOMMITTED` misses nothing during page splits.",
		[]string{"plans"}, "ordered"},
}

// list returns the questions as the documentation has them, in lines of at most 120 columns.
func list() string {
	var b strings.Builder
	for i, q := range questions {
		text := q.text
		if len(q.parts) > 0 {
			text += " *(" + strings.Join(q.parts, ", ") + ")*"
		}
		b.WriteString(wrap(fmt.Sprintf("%d. ", i+1), text))
	}
	return b.String()
}

// wrap breaks a text after 120 columns. Further lines are indented by three.
func wrap(line, text string) string {
	const columns = 120
	var b strings.Builder
	for i, word := range strings.Fields(text) {
		if i > 0 {
			if len([]rune(line))+1+len([]rune(word)) > columns {
				b.WriteString(line + "\n")
				line = "   " + word
				continue
			}
			line += " "
		}
		line += word
	}
	b.WriteString(line + "\n")
	return b.String()
}
