package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMigrateMayBeRepeated(t *testing.T) {
	db := filepath.Join(t.TempDir(), "queue.db")
	for range 2 {
		require.Equal(t, []string{"queue mail has version 3", "queue post has version 3"}, succeed(t, "", "migrate", "--db", db, "mail", "post").lines())
	}
	require.JSONEq(t, `{"queue":"mail","version":3}`, succeed(t, "", "migrate", "--db", db, "-o", "json", "mail").out)
}

func TestSchemaIsPrintedForEachDialect(t *testing.T) {
	server := succeed(t, "", "schema", "--dialect", "sqlserver", "--schema", "jobs", "mail").out
	require.Contains(t, server, "CREATE TABLE [jobs].[chanq_mail]")
	require.Contains(t, server, "\nGO\n")
	require.Equal(t, server, succeed(t, "", "schema", "--dsn", "sqlserver://nowhere?database=x", "--schema", "jobs", "mail").out, "it connects to nothing")
	require.Contains(t, succeed(t, "", "schema", "--dialect", "sqlite", "mail").out, `CREATE TABLE IF NOT EXISTS "main"."chanq_mail"`)
	postgres := succeed(t, "", "schema", "--dialect", "postgres", "--schema", "jobs", "mail").out
	require.Contains(t, postgres, `CREATE TABLE IF NOT EXISTS "jobs"."chanq_mail"`)
	require.Equal(t, postgres, succeed(t, "", "schema", "--dsn", "postgres://nowhere/x", "--schema", "jobs", "mail").out, "it connects to nothing")
	var parsed struct{ Statements []string }
	require.NoError(t, json.Unmarshal([]byte(succeed(t, "", "schema", "--dialect", "sqlite", "-o", "json", "mail").out), &parsed))
	require.NotEmpty(t, parsed.Statements)
}

func TestArgumentsAreSentAndReceivedInOrder(t *testing.T) {
	db := newQueue(t, "mail")
	ids := succeed(t, "", "send", "--db", db, "mail", "one", "two", "").lines()
	require.Len(t, ids, 3)
	require.Equal(t, "one\n", succeed(t, "", "receive", "--db", db, "mail").out, "one message by default")
	require.Equal(t, "two\n\n", succeed(t, "", "receive", "--db", db, "-n", "0", "mail").out, "an empty body is a body")
	r := succeed(t, "", "receive", "--db", db, "mail")
	require.Empty(t, r.out)
	require.Equal(t, "no message of queue mail is ready\n", r.err)
	require.Equal(t, statsLine{Queue: "mail", Limit: 10_000}, state(t, db))
}

func TestLinesAreSentAndReceivedInOrder(t *testing.T) {
	db := newQueue(t, "mail")
	var lines strings.Builder
	const n = 5000
	for i := range n {
		fmt.Fprintln(&lines, "line", i)
	}
	r := succeed(t, lines.String(), "send", "--db", db, "mail")
	require.Equal(t, "5000 messages sent\n", r.out)
	require.Contains(t, r.err, "sending: 5000")
	require.Equal(t, n, state(t, db).Ready)
	require.Equal(t, lines.String()[:len("line 0\nline 1\n")], succeed(t, "", "receive", "--db", db, "-n", "2", "mail").out)
	require.Equal(t, n-2, state(t, db).Ready)
}

func TestLastLineNeedsNoEnd(t *testing.T) {
	db := newQueue(t, "mail")
	require.Equal(t, "2 messages sent\n", succeed(t, "a\nb", "send", "--db", db, "mail").out)
}

func TestATooLongLineIsRefusedAfterTheLinesBefore(t *testing.T) {
	db := newQueue(t, "mail")
	succeed(t, "", "configure", "--db", db, "--max-body", "10", "mail")
	r := runIn(t.Context(), "short\n"+strings.Repeat("x", 100)+"\n", "send", "--db", db, "mail")
	require.Equal(t, exitFailed, r.status)
	require.Contains(t, r.err, "a line is longer than the max-body of the queue, 10 bytes; 1 message sent")
	require.Equal(t, 1, state(t, db).Ready)
}

func TestReceiptsMarkDuplicates(t *testing.T) {
	db := newQueue(t, "mail")
	first := succeed(t, "", "send", "--db", db, "--dedup-key", "k", "mail", "x").lines()[0]
	require.Equal(t, first+" (in the queue before)\n", succeed(t, "", "send", "--db", db, "--dedup-key", "k", "mail", "x").out)
	require.JSONEq(t, `{"id":"`+first+`","duplicate":true,"replaced":false}`, succeed(t, "", "send", "--db", db, "-o", "json", "--dedup-key", "k", "mail", "x").out)
	require.Equal(t, 1, state(t, db).Ready)

	send := func(does string, more ...string) string {
		return succeed(t, "", append([]string{"send", "--db", db, "--dedup-key", "k", "--on-duplicate", does, "mail", does}, more...)...).out
	}
	require.Equal(t, first+" (in the queue before)\n", send("keep-queued"))
	require.Equal(t, first+" (replaced)\n", send("replace"))
	require.JSONEq(t, `{"id":"`+first+`","duplicate":false,"replaced":true}`, send("debounce", "--delay", "1h", "--debounce-max", "90m", "-o", "json"))
	require.Equal(t, 1, state(t, db).Scheduled)
}

func TestJSONHasTheWholeMessage(t *testing.T) {
	db := newQueue(t, "mail")
	id := succeed(t, "", "send", "--db", db, "--priority", "high", "--header", "trace=a=b", "--dedup-key", "k", "--type", "welcome", "mail", "<b>\n").lines()[0]
	want := message{Priority: "high", Attempt: 0, DedupKey: "k", Type: "welcome", Headers: map[string]string{"trace": "a=b"}}
	state := "ready"
	body := "<b>\n"
	want.Body = &body
	check := func(line string) {
		var got message
		require.NoError(t, json.Unmarshal([]byte(line), &got))
		if state != "" {
			require.Contains(t, line, `"state":"`+state+`"`)
			require.Contains(t, line, `"body":"<b>\n"`)
		}
		require.Equal(t, id, got.ID.String())
		require.False(t, got.EnqueuedAt.IsZero())
		require.Equal(t, state == "", got.Fence > 0, "a claim has one")
		got.ID, got.EnqueuedAt, got.Fence = want.ID, want.EnqueuedAt, want.Fence
		require.Equal(t, want, got)
	}
	check(succeed(t, "", "peek", "--db", db, "-o", "json", "mail").out)
	check(succeed(t, "", "peek", "--db", db, "-o", "json", "--id", id, "mail").out)
	require.Contains(t, succeed(t, "", "peek", "--db", db, "mail").out, "welcome")
	state, want.Attempt = "", 1
	check(succeed(t, "", "receive", "--db", db, "-o", "json", "mail").out)
}

func TestBodyThatIsNoTextIsBase64(t *testing.T) {
	db := newQueue(t, "mail")
	succeed(t, "\xff\x00\n", "send", "--db", db, "mail")
	require.Contains(t, succeed(t, "", "peek", "--db", db, "-o", "json", "mail").out, `"body_base64":"/wA="`)
	require.Equal(t, "\xff\x00\n", succeed(t, "", "receive", "--db", db, "mail").out, "the text output has the bytes")
}

func TestPeekClaimsNothingAndPrintsNoEscapes(t *testing.T) {
	db := newQueue(t, "mail")
	succeed(t, "", "send", "--db", db, "--delay", "1h", "mail", "later")
	succeed(t, "", "send", "--db", db, "mail", "red \x1b[31malert "+strings.Repeat("long ", 100))
	for range 2 {
		lines := succeed(t, "", "peek", "--db", db, "mail").lines()
		require.Len(t, lines, 2, "a heading and a message")
		require.Contains(t, lines[1], `red \x1b[31malert long`)
		require.True(t, strings.HasSuffix(lines[1], "…"))
	}
	require.Contains(t, succeed(t, "", "peek", "--db", db, "--state", "scheduled", "mail").out, "later")
	succeed(t, "", "send", "--db", db, "--ttl", "1h", "--priority", "urgent", "mail", "soon over")
	require.Contains(t, succeed(t, "", "peek", "--db", db, "-o", "json", "mail").lines()[0], `"expires_at":"`)
	require.Contains(t, fail(t, exitFailed, "peek", "--db", db, "--id", "0199c0de-0000-7000-8000-000000000000", "mail"), "no such message")
}

func TestPeekContinuesAfterAMessageAndReturnsTheRequestedCount(t *testing.T) {
	db := newQueue(t, "mail")
	succeed(t, strings.Repeat("x\n", 2100), "send", "--db", db, "mail")
	require.Len(t, succeed(t, "", "peek", "--db", db, "-o", "json", "-n", "2050", "mail").lines(), 2050)
	all := succeed(t, "", "peek", "--db", db, "-n", "5000", "mail").lines()
	require.Len(t, all, 2101, "and one heading")
	last, _, _ := strings.Cut(all[10], " ")
	require.Equal(t, all[11:21], succeed(t, "", "peek", "--db", db, "--after", last, "mail").lines()[1:])
	require.Contains(t, fail(t, exitFailed, "peek", "--db", db, "--state", "dead", "--after", last, "mail"), "is ready, not dead")
	require.Contains(t, fail(t, exitUsage, "peek", "--db", db, "--after", "nine", "mail"), "--after")
}

func TestNackReturnsTheMessageWithTheCause(t *testing.T) {
	db := newQueue(t, "mail")
	succeed(t, "", "send", "--db", db, "mail", "x")
	require.Equal(t, "x\n", succeed(t, "", "receive", "--db", db, "--nack", "--delay", "1h", "--cause", "not today", "mail").out)
	require.Equal(t, 1, state(t, db).Scheduled)
	require.Contains(t, succeed(t, "", "peek", "--db", db, "--state", "scheduled", "mail").out, "not today")
}

func TestDeadMessagesAreListedAndRedriven(t *testing.T) {
	db := newQueue(t, "mail")
	ids := succeed(t, "", "send", "--db", db, "mail", "a", "b", "c").lines()
	succeed(t, "", "configure", "--db", db, "--max-attempts", "1", "mail")
	succeed(t, "", "receive", "--db", db, "-n", "3", "--nack", "--cause", "poison", "mail")
	require.Equal(t, 3, state(t, db).Dead)
	list := succeed(t, "", "peek", "--state", "dead", "--db", db, "mail").out
	for _, id := range ids {
		require.Contains(t, list, id)
	}
	lines := strings.Split(list, "\n")
	require.Regexp(t, `^ID +STATE +PRIORITY +ATTEMPTS +AT +CAUSE +LAST ERROR +BODY$`, lines[0])
	at := strings.Index(lines[0], "CAUSE")
	for _, line := range lines[1:4] {
		require.Equal(t, "exhausted  poison", line[at:at+len("exhausted  poison")], "under their headings")
	}
	succeed(t, "", "send", "--db", db, "mail", "d")
	require.NotContains(t, succeed(t, "", "peek", "--db", db, "mail").out, "CAUSE", "of those that are alive")

	require.Equal(t, "1 message redriven\n", succeed(t, "", "redrive", "--db", db, "mail", ids[1], ids[1]).out, "a repeated ID counts once")
	require.Equal(t, "d\nb\n", succeed(t, "", "receive", "--db", db, "-n", "2", "mail").out)
	r := runIn(t.Context(), "", "redrive", "--db", db, "mail", ids[1])
	require.Equal(t, exitFailed, r.status, "it is no longer dead")
	require.Equal(t, "1 message redriven\n", succeed(t, "", "redrive", "--db", db, "--limit", "1", "--yes", "mail").out)
	require.JSONEq(t, `{"redriven":1}`, succeed(t, "", "redrive", "--db", db, "-o", "json", "--yes", "mail").out)
	require.Equal(t, 2, state(t, db).Ready)
}

// poison dead-letters messages of one type, and returns their IDs.
func poison(t *testing.T, db, kind, cause string, n int) []string {
	t.Helper()
	succeed(t, "", "configure", "--db", db, "--max-attempts", "1", "mail")
	ids := succeed(t, "", append([]string{"send", "--db", db, "--type", kind, "mail"}, strings.Fields(strings.Repeat("x ", n))...)...).lines()
	for i := range n {
		succeed(t, "", "receive", "--db", db, "--nack", "--cause", fmt.Sprintf("%s %d", cause, i), "mail")
	}
	return ids
}

func TestDeadMessagesAreGroupedAndChangedByCause(t *testing.T) {
	db := newQueue(t, "mail")
	ids := poison(t, db, "bill", "no user", 3)
	poison(t, db, "note", "disk full", 1)
	lines := succeed(t, "", "causes", "--db", db, "mail").lines()
	require.Regexp(t, `^CAUSE +FINGERPRINT +MESSAGES +FIRST +LAST +EXAMPLE +LAST ERROR$`, lines[0])
	require.Len(t, lines, 3)
	var found struct {
		Groups []struct {
			Cause, Fingerprint, Example, LastError string
			Messages                               int
		}
		More bool
	}
	require.NoError(t, json.Unmarshal([]byte(succeed(t, "", "causes", "--db", db, "-o", "json", "mail").out), &found))
	require.Len(t, found.Groups, 2)
	group := found.Groups[0]
	if group.Messages == 1 {
		group = found.Groups[1]
	}
	require.Equal(t, "exhausted", group.Cause)
	require.Equal(t, 3, group.Messages)
	require.Equal(t, ids[2], group.Example)
	require.Contains(t, strings.Join(lines, "\n"), group.Fingerprint+"  3 ")

	these := []string{"--db", db, "--cause", "exhausted", "--fingerprint", group.Fingerprint, "mail"}
	require.Equal(t, "3 messages would be redriven\n", succeed(t, "", append([]string{"redrive", "--dry-run"}, these...)...).out)
	require.JSONEq(t, `{"messages":3,"more":false}`, succeed(t, "", append([]string{"redrive", "--dry-run", "-o", "json"}, these...)...).out)
	require.Equal(t, 4, state(t, db).Dead, "nothing is changed")
	require.Len(t, succeed(t, "", append([]string{"peek", "--state", "dead"}, these...)...).lines(), 4)
	require.Equal(t, "1 message would be purged\n", succeed(t, "", "purge", "--db", db, "--state", "dead", "--type", "note", "--dry-run", "mail").out)
	r := runIn(t.Context(), "no\n", "purge", "--db", db, "--state", "dead", "--type", "note", "mail")
	require.Contains(t, r.err, "Delete the selected dead messages of queue mail, 1 now? [y/N]")
	require.Equal(t, "1 message purged\n", succeed(t, "", "purge", "--db", db, "--state", "dead", "--type", "note", "--yes", "mail").out)
	r = succeed(t, "", append([]string{"redrive", "--per-second", "100", "--limit", "2", "--yes"}, these...)...)
	require.Equal(t, "2 messages redriven\n", r.out)
	require.Contains(t, r.err, "redriven: 2 (", "its progress")
	require.Equal(t, "1 message purged\n", succeed(t, "", append([]string{"purge", "--state", "dead", "--yes"}, these...)...).out)
	require.Equal(t, 2, state(t, db).Ready)
	require.JSONEq(t, `{"groups":[],"more":false,"failing":{"groups":[],"more":false}}`, succeed(t, "", "causes", "--db", db, "-o", "json", "mail").out)
	require.Contains(t, fail(t, exitFailed, "purge", "--db", db, "--state", "ready", "--type", "x", "--yes", "mail"), "Select.Type is \"x\": must be empty")
}

// A queue that cannot be opened, for whatever reason, hides no other queue.
func TestAQueueThatCannotBeOpenedHidesNoOther(t *testing.T) {
	db := newQueue(t, "mail")
	for _, name := range []string{"newer", "other", "zebra"} {
		succeed(t, "", "migrate", "--db", db, name)
	}
	c, err := (&app{}).open(t.Context(), target{file: db}, mustExist)
	require.NoError(t, err)
	defer c.Close()
	for _, text := range []string{"UPDATE chanq__queues SET min_version = 99 WHERE name = 'newer'", "UPDATE chanq__queues SET name = 'No such Name' WHERE name = 'other'"} {
		_, err := c.ExecContext(t.Context(), text)
		require.NoError(t, err, text)
	}
	for _, args := range [][]string{{"stats"}, {"consumers"}, {"top", "-n", "1"}, {"stats", "--slots"}} {
		r := runIn(t.Context(), "", append(args, "--db", db)...)
		if args[0] != "top" { // top shows the error among the lines
			require.Equal(t, exitFailed, r.status, args)
		}
		for _, said := range []string{"newer", "No such Name"} {
			require.Contains(t, r.out+r.err, said, args)
		}
		if len(args) == 1 && args[0] == "stats" {
			require.Regexp(t, `(?m)^mail +0`, r.out, args)
			require.Regexp(t, `(?m)^zebra +0`, r.out, args)
		}
	}
	r := runIn(t.Context(), "", "stats", "--db", db, "-o", "json")
	require.Contains(t, r.out, `"queue":"zebra"`)
	require.Contains(t, fail(t, exitFailed, "stats", "--db", db, "newer"), "newer")
}

func TestMessagesAreDeletedByTheirIDs(t *testing.T) {
	db := newQueue(t, "mail")
	ids := succeed(t, "", "send", "--db", db, "mail", "a", "b", "c").lines()
	succeed(t, "", "configure", "--db", db, "--max-attempts", "1", "mail")
	succeed(t, "", "receive", "--db", db, "--nack", "mail")
	partly := func(want string, args ...string) {
		r := runIn(t.Context(), "", append(args, "--db", db)...)
		require.Equal(t, exitFailed, r.status)
		require.Contains(t, r.out+r.err, want)
	}
	partly("1 message purged\nchanq: queue mail: 1 message not dead\n", "purge", "mail", ids[0], ids[1])
	partly("0 messages purged\n", "purge", "mail", ids[0])
	partly("1 message cancelled\nchanq: queue mail: 1 message not ready, scheduled or leased\n", "cancel", "mail", ids[0], ids[1])
	require.JSONEq(t, `{"cancelled":1}`, succeed(t, "", "cancel", "--db", db, "-o", "json", "mail", ids[2]).out)
	require.Equal(t, statsLine{Queue: "mail", Limit: 10_000}, state(t, db))
}

func TestMessagesAreCancelledByTheirKeys(t *testing.T) {
	db := newQueue(t, "mail")
	path := func(key string) []string {
		return []string{"send", "--db", db, "--dedup-key", key, "--delay", "24h", "mail", key}
	}
	for _, key := range []string{"a", "b", "c"} {
		succeed(t, "", path(key)...)
	}
	require.Equal(t, "1 message cancelled\n", succeed(t, "", "cancel", "--db", db, "--dedup-key", "a", "--dedup-key", "a", "mail").out)
	r := runIn(t.Context(), "", "cancel", "--db", db, "--dedup-key", "a", "--dedup-key", "b", "mail")
	require.Equal(t, exitFailed, r.status)
	require.Contains(t, r.out+r.err, "1 message cancelled\nchanq: queue mail: 1 key without a ready, scheduled or leased message\n")
	r = runIn(t.Context(), "", "cancel", "--db", db, "--dedup-key", "d", "mail")
	require.Equal(t, exitFailed, r.status)
	require.Contains(t, r.out+r.err, "0 messages cancelled\n")
	require.Equal(t, 1, state(t, db).Scheduled)
	require.JSONEq(t, `{"cancelled":1}`, succeed(t, "", "cancel", "--db", db, "-o", "json", "--dedup-key", "c", "mail").out)
	require.Equal(t, statsLine{Queue: "mail", Limit: 10_000}, state(t, db))
}

func TestScheduledMessagesAreRunByTheirIDs(t *testing.T) {
	db := newQueue(t, "mail")
	ready := succeed(t, "", "send", "--db", db, "mail", "a").lines()[0]
	ids := succeed(t, "", "send", "--db", db, "--delay", "24h", "mail", "b", "c").lines()
	r := runIn(t.Context(), "", "run", "--db", db, "mail", ids[0], ready)
	require.Equal(t, exitFailed, r.status)
	require.Contains(t, r.out+r.err, "1 message due\nchanq: queue mail: 1 message not scheduled\n")
	now := state(t, db)
	require.Equal(t, [2]int{2, 1}, [2]int{now.Ready, now.Scheduled})
	require.JSONEq(t, `{"due":1}`, succeed(t, "", "run", "--db", db, "-o", "json", "mail", ids[1]).out)

	succeed(t, "", "migrate", "--db", db, "--ordered", "line")
	r = runIn(t.Context(), "", "run", "--db", db, "line", ready)
	require.Contains(t, r.err, "the queue is ordered")
}

func TestDropLeavesWhatHasMessages(t *testing.T) {
	db := newQueue(t, "mail")
	succeed(t, "", "migrate", "--db", db, "post")
	succeed(t, "", "send", "--db", db, "mail", "a")
	require.Contains(t, fail(t, exitFailed, "drop", "--db", db, "mail"), "drop mail: the queue has messages; chanq purge deletes")
	require.Equal(t, "queue post dropped\n", succeed(t, "", "drop", "--db", db, "post").out)
	require.Equal(t, "there is no queue post\n", succeed(t, "", "drop", "--db", db, "post").out, "it can be repeated")
	r := runIn(t.Context(), "n\n", "drop", "--db", db, "--with-messages", "mail")
	require.Equal(t, exitFailed, r.status)
	require.Contains(t, r.err, "Drop queue mail with whatever is in it? [y/N]")
	require.Equal(t, 1, state(t, db).Ready)
	require.JSONEq(t, `{"queue":"mail","dropped":true}`, succeed(t, "", "drop", "--db", db, "--with-messages", "--yes", "-o", "json", "mail").out)
	require.JSONEq(t, `{"queue":"mail","dropped":false}`, succeed(t, "", "drop", "--db", db, "-o", "json", "mail").out)
	require.Equal(t, "[]\n", succeed(t, "", "stats", "--db", db, "-o", "json").out)
}

func TestPurgeAsksFirst(t *testing.T) {
	db := newQueue(t, "mail")
	succeed(t, "", "send", "--db", db, "mail", "a", "b")
	for _, answer := range []string{"", "\n", "n\n", "yesterday\n"} {
		r := runIn(t.Context(), answer, "purge", "--db", db, "--state", "ready", "mail")
		require.Equal(t, exitFailed, r.status, "%q", answer)
		require.Contains(t, r.err, "Delete all ready messages of queue mail, 2 now? [y/N]")
		require.Contains(t, r.err, "nothing was changed")
	}
	require.Equal(t, 2, state(t, db).Ready)
	require.Equal(t, "2 messages purged\n", succeed(t, "Yes\n", "purge", "--db", db, "--state", "ready", "mail").out)
	require.Equal(t, 0, state(t, db).Ready)
	succeed(t, "", "send", "--db", db, "mail", "a")
	r := succeed(t, "", "purge", "--db", db, "--state", "ready", "--yes", "mail")
	require.Equal(t, "1 message purged\n", r.out)
	require.Empty(t, r.err)
}

func TestRedriveAsksFirst(t *testing.T) {
	db := newQueue(t, "mail")
	ids := poison(t, db, "bill", "no user", 3)
	for _, answer := range []string{"", "\n", "n\n"} {
		r := runIn(t.Context(), answer, "redrive", "--db", db, "mail")
		require.Equal(t, exitFailed, r.status, "%q", answer)
		require.Contains(t, r.err, "Redrive all dead messages of queue mail, 3 now? [y/N]")
		require.Contains(t, r.err, "nothing was changed")
	}
	require.Contains(t, runIn(t.Context(), "", "redrive", "--db", db, "--type", "bill", "--limit", "2", "mail").err, "Redrive 2 of the selected dead messages of queue mail now? [y/N]")
	require.Equal(t, 3, state(t, db).Dead)
	require.Equal(t, "1 message redriven\n", succeed(t, "", "redrive", "--db", db, "mail", ids[0]).out, "an ID is an answer")
	require.Equal(t, "2 messages redriven\n", succeed(t, "y\n", "redrive", "--db", db, "mail").out)
	require.Equal(t, 3, state(t, db).Ready)
}

func TestPauseStopsReceiving(t *testing.T) {
	db := newQueue(t, "mail")
	succeed(t, "", "send", "--db", db, "mail", "a")
	require.Equal(t, "queue mail paused\n", succeed(t, "", "pause", "--db", db, "mail").out)
	require.True(t, state(t, db).Paused)
	require.Contains(t, succeed(t, "", "stats", "--db", db).out, "paused")
	require.Empty(t, succeed(t, "", "receive", "--db", db, "mail").out)
	require.JSONEq(t, `{"queue":"mail","paused":false}`, succeed(t, "", "resume", "--db", db, "-o", "json", "mail").out)
	require.Equal(t, "a\n", succeed(t, "", "receive", "--db", db, "mail").out)
}

func TestStatsListEveryQueue(t *testing.T) {
	db := newQueue(t, "mail")
	succeed(t, "", "migrate", "--db", db, "post")
	succeed(t, "", "send", "--db", db, "post", "a")
	lines := succeed(t, "", "stats", "--db", db).lines()
	require.Len(t, lines, 3)
	require.Regexp(t, `^mail +0 +0 +0 +0 +0 +-`, lines[1])
	require.Regexp(t, `^post +1 +0 +0 +0 +0 +\d`, lines[2])
	require.Len(t, succeed(t, "", "stats", "--db", db, "post").lines(), 2)
}

func TestStatsOfADatabaseWithoutQueuesAreEmpty(t *testing.T) {
	db := filepath.Join(t.TempDir(), "queue.db")
	c, err := (&app{}).open(t.Context(), target{file: db}, mayCreate)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	require.Equal(t, "[]\n", succeed(t, "", "stats", "--db", db, "-o", "json").out)
}

func TestTopRepeatsTheTable(t *testing.T) {
	db := newQueue(t, "mail")
	out := succeed(t, "", "top", "--db", db, "--every", "10ms", "-n", "3").out
	require.Equal(t, 3, strings.Count(out, "QUEUE"))
	require.NotContains(t, out, "\x1b", "no terminal")
	require.Equal(t, 2, strings.Count(succeed(t, "", "top", "--db", db, "--every", "10ms", "-n", "2", "-o", "json").out, `"queue":"mail"`))
}

func TestStatsAndTopHaveTheTimesOfTheLastMinute(t *testing.T) {
	db := newQueue(t, "mail")
	require.Contains(t, succeed(t, "", "stats", "--db", db, "-o", "json").out, `"wait_seconds":null,"handler_seconds":null`)
	require.Regexp(t, `(?m)^mail +0 +0 +0 +0 +- +\S+ +\S+ +- +-`, succeed(t, "", "top", "--db", db, "-n", "1").out)
	c, err := (&app{}).open(t.Context(), target{file: db}, mayCreate)
	require.NoError(t, err)
	for _, ago := range []int{10, 30, 3600} { // 90 calls of up to 128 ms and 10 of up to 4,096 ms, whose messages waited for up to 16 ms; and one of long ago
		times := "times5, times7, times12) VALUES ('mail', 10, CAST(unixepoch('now') AS INTEGER) * 1000 - %d000, 0, 0, 0, 0, 0, 100 << 32, 90, 10)"
		if ago == 3600 {
			times = "times20) VALUES ('mail', 10, CAST(unixepoch('now') AS INTEGER) * 1000 - %d000, 0, 0, 0, 0, 0, 1000)"
		}
		_, err := c.DB.ExecContext(t.Context(), fmt.Sprintf("INSERT INTO chanq__samples (queue, step, at, sent, acked, nacked, died, delivered, "+times, ago))
		require.NoError(t, err)
	}
	require.NoError(t, c.Close())
	const want = `"wait_seconds":{"p50":0.024,"p95":0.032},"handler_seconds":{"p50":0.1,"p95":3.072}`
	require.Contains(t, succeed(t, "", "stats", "--db", db, "-o", "json").out, want)
	require.Contains(t, succeed(t, "", "top", "--db", db, "-n", "1", "-o", "json").out, want)
	require.Contains(t, succeed(t, "", "top", "--db", db, "-n", "1").out, "  24ms/32ms  100ms/3.1s  ")
	require.Equal(t, "1m0s/2h20m0s", (&quantiles{81.5, 8388.6}).String())
}

func TestFollowReceivesLaterMessages(t *testing.T) {
	db := newQueue(t, "mail")
	succeed(t, "", "send", "--db", db, "mail", "before")
	read, write := io.Pipe()
	status := make(chan int, 1)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	go func() {
		status <- Run(ctx, []string{"receive", "--follow", "--db", db, "mail"}, strings.NewReader(""), write, io.Discard)
		write.Close()
	}()
	line := make([]byte, 100)
	n, err := read.Read(line)
	require.NoError(t, err)
	require.Equal(t, "before\n", string(line[:n]))
	succeed(t, "", "send", "--db", db, "mail", "after")
	n, err = read.Read(line)
	require.NoError(t, err)
	require.Equal(t, "after\n", string(line[:n]))
	interrupt()
	require.Equal(t, exitOK, <-status)
	require.Equal(t, statsLine{Queue: "mail", Limit: 10_000}, state(t, db), "both were acked")
}

func TestFollowEndsAfterSoMany(t *testing.T) {
	db := newQueue(t, "mail")
	succeed(t, "", "send", "--db", db, "mail", "a", "b", "c")
	require.Equal(t, "a\nb\n", succeed(t, "", "receive", "--db", db, "--follow", "-n", "2", "mail").out)
	require.Equal(t, 1, state(t, db).Ready, "the third is released")
}

// A reader that closes its end must not lose messages.
func TestAMessageThatCannotBePrintedIsReleased(t *testing.T) {
	for _, mode := range [][]string{{"-n", "0"}, {"--follow"}} {
		db := newQueue(t, "mail")
		succeed(t, "", "send", "--db", db, "mail", "a", "b")
		read, write := io.Pipe()
		read.Close()
		args := append([]string{"receive", "--db", db, "mail"}, mode...)
		require.Equal(t, exitFailed, Run(t.Context(), args, strings.NewReader(""), write, io.Discard))
		require.Equal(t, 2, state(t, db).Ready)
		require.Contains(t, succeed(t, "", "peek", "--db", db, "-o", "json", "mail").out, `"attempt":0`)
	}
}

// As in: chanq receive -n 0 | head -1
func TestAClosedPipeEndsTheCommandQuietly(t *testing.T) {
	db := newQueue(t, "mail")
	succeed(t, "", "send", "--db", db, "mail", "a", "b")
	for _, args := range [][]string{
		{"receive", "--db", db, "-n", "0", "mail"}, {"receive", "--db", db, "-o", "json", "mail"}, {"peek", "--db", db, "mail"},
		{"stats", "--db", db}, {"stats", "--db", db, "-o", "json"}, {"top", "--db", db}, {"schema", "--db", db, "mail"}, {"doctor", "--db", db},
		{"--help"}, {"stats", "--help"}, {"--version"}, {"completion", "bash"},
	} {
		read, write, err := os.Pipe()
		require.NoError(t, err)
		require.NoError(t, read.Close())
		cmd := exec.CommandContext(t.Context(), program(t), args...)
		var said bytes.Buffer
		cmd.Stdout, cmd.Stderr = write, &said
		_ = cmd.Run()
		require.Contains(t, []int{exitOK, exitPipe}, cmd.ProcessState.ExitCode(), "%v: %s", args, said.String())
		require.Empty(t, said.String(), args)
		require.NoError(t, write.Close())
		require.Equal(t, 2, state(t, db).Ready)
	}
}

func TestInterruptedCommandHasTheStatusOfAShell(t *testing.T) {
	db := newQueue(t, "mail")
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	read, write := io.Pipe() // an input that never ends
	defer write.Close()
	require.Equal(t, exitInterrupted, Run(ctx, []string{"send", "--db", db, "mail"}, read, io.Discard, io.Discard))
	require.Equal(t, exitInterrupted, Run(ctx, []string{"receive", "--db", db, "mail"}, read, io.Discard, io.Discard))
	require.Equal(t, exitInterrupted, Run(ctx, []string{"purge", "--state", "ready", "--db", db, "mail"}, read, io.Discard, io.Discard))
	require.Equal(t, exitInterrupted, Run(ctx, []string{"drop", "--db", db, "mail"}, read, io.Discard, io.Discard))
	succeed(t, "", "stats", "--db", db, "mail")
}
