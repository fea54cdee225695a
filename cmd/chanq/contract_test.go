package main

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
)

// contract is the output of each command with -o json: the kind of value on each line, and the keys of
// its objects or of the objects in its list. It must not change, because programs read it.
var contract = map[string]string{
	"bench":            "{consumed_per_second paced_per_second round_trip_seconds stored_in_bulk_per_second stored_per_second under_way_median_seconds under_way_p99_seconds}",
	"batch list":       "[{done ended? id made queue sent}]",
	"batch status":     "{dead done ended? id left made queue sent}",
	"cancel":           "{cancelled}",
	"causes":           "{failing groups more}",
	"configure":        "{kind max_attempts max_body queue retain retain_dead}",
	"consumers":        "[{heard host id name process queue since until}]",
	"demo":             "{changed differences duplicated lost skipped verified}",
	"doctor":           "[{check found queue? remedy? status}]",
	"drop":             "{dropped queue}",
	"find":             "{attempt due_at enqueued_at fence id priority size state}",
	"jobs migrate":     "{migrated}",
	"log":              "{actor at ended? error? messages queue reason? what which?}",
	"man":              "{folder pages}",
	"migrate":          "{queue version}",
	"pause":            "{paused queue}",
	"peek":             "{attempt body due_at enqueued_at fence history? id last_error? priority size state}",
	"purge":            "{purged}",
	"redrive":          "{redriven}",
	"receive":          "{attempt body enqueued_at fence id priority}",
	"release":          "{released}",
	"resume":           "{paused queue}",
	"run":              "{due}",
	"schedule list":    "[{catch_up ensured last? line name next overlap pause_reason? paused? paused_by? queue type? zone}]",
	"schedule migrate": "{migrated}",
	"schedule pause":   "{paused schedule}",
	"schedule remove":  "{removed schedule}",
	"schedule resume":  "{resumed schedule}",
	"schedule run":     "{duplicate id}",
	"schema":           "{dialect queue statements}",
	"send":             "{duplicate id replaced}",
	"stats":            "[{dead done estimates? handler_seconds leased limit oldest_ready_seconds paused queue ready scheduled wait_seconds}]",
	"top":              "[{acked_per_second consumers dead done estimates? findings handler_seconds leased limit oldest_ready_seconds paused queue ready scheduled sent_per_second state wait_seconds}]",
	"version":          "{version}",

	"topic list":        "[{equal? present? queue topic}]",
	"topic migrate":     "{migrated}",
	"topic unsubscribe": "{queue topic unsubscribed}",
}

// without are the commands without JSON output: a page that is served, and scripts for shells.
var without = []string{"ui", "schedule", "batch", "jobs", "topic", "help", "completion", "completion bash", "completion fish", "completion powershell", "completion zsh"}

func TestEachCommandPrintsJSON(t *testing.T) {
	db := newQueue(t, "mail")
	ensured(t, db, "nightly")
	batches := newQueue(t, "mail")
	send := func(bodies ...string) []string {
		return succeed(t, "", append([]string{"send", "--db", db, "mail"}, bodies...)...).lines()
	}
	killed := func() string {
		id := send("x")[0]
		succeed(t, "", "purge", "--yes", "--state", "dead", "--db", db, "mail")
		succeed(t, "", "configure", "--db", db, "--max-attempts", "1", "mail")
		succeed(t, "", "receive", "--nack", "--db", db, "mail")
		return id
	}
	arguments := map[string]func() []string{
		"batch list":   func() []string { sentBatch(t, batches); return []string{"--db", batches} },
		"batch status": func() []string { return []string{"--db", batches, sentBatch(t, batches)} },
		"bench":        func() []string { return []string{"--db", filepath.Join(t.TempDir(), "b.db"), "--for", "400ms"} },
		"cancel":       func() []string { return []string{"--db", db, "mail", send("x")[0]} },
		"causes":       func() []string { killed(); return []string{"--db", db, "mail"} },
		"redrive":      func() []string { killed(); return []string{"--db", db, "--yes", "mail"} },
		"demo":         func() []string { return []string{"--dir", folderOf(t, 3)} },
		"drop":         func() []string { succeed(t, "", "migrate", "--db", db, "post"); return []string{"--db", db, "post"} },
		"find":         func() []string { return []string{"--db", db, "mail", send("x")[0]} },
		"log":          func() []string { succeed(t, "", "pause", "--db", db, "mail"); return []string{"--db", db, "mail"} },
		"man":          func() []string { return []string{t.TempDir()} },
		"migrate":      func() []string { return []string{"--db", db, "mail"} },
		"pause":        func() []string { return []string{"--db", db, "mail"} },
		"resume":       func() []string { return []string{"--db", db, "mail"} },
		"peek":         func() []string { send("x"); return []string{"--db", db, "mail"} },
		"purge":        func() []string { send("x"); return []string{"--db", db, "--yes", "--state", "ready", "mail"} },
		"receive": func() []string {
			send("x")
			succeed(t, "", "resume", "--db", db, "mail")
			return []string{"--db", db, "mail"}
		},
		"configure": func() []string { return []string{"--db", db, "mail"} },
		"run": func() []string {
			return []string{"--db", db, "mail", succeed(t, "", "send", "--db", db, "--delay", "1h", "mail", "x").lines()[0]}
		},
		"release":         func() []string { return []string{"--db", db, "--yes", "mail", chanq.NewID().String()} },
		"schedule pause":  func() []string { ensured(t, db, "nightly"); return []string{"--db", db, "nightly"} },
		"schedule remove": func() []string { ensured(t, db, "other"); return []string{"--db", db, "other"} },
		"schedule resume": func() []string { ensured(t, db, "nightly"); return []string{"--db", db, "nightly"} },
		"schedule run":    func() []string { ensured(t, db, "nightly"); return []string{"--db", db, "nightly"} },
		"schema":          func() []string { return []string{"--dialect", "sqlite", "mail"} },
		"send":            func() []string { return []string{"--db", db, "mail", "x"} },
		"version":         func() []string { return nil },
		"top":             func() []string { return []string{"--db", db, "-n", "2", "--every", "10ms"} },

		"topic list":        func() []string { subscribed(t, db); return []string{"--db", db} },
		"topic unsubscribe": func() []string { subscribed(t, db); return []string{"--db", db, "mail", "orders"} },
	}
	for _, name := range leaves((&app{}).root()) {
		if slices.Contains(without, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			require.Contains(t, contract, name, "what does it write?")
			args := []string{"--db", db}
			if of := arguments[name]; of != nil {
				args = of()
			}
			r := runIn(t.Context(), "", append(append(strings.Fields(name), "-o", "json"), args...)...)
			require.Contains(t, []int{exitOK, exitFailed}, r.status, r.err) // doctor fails because there is no consumer
			require.NotEmpty(t, r.out)
			for _, line := range r.lines() {
				fits(t, contract[name], line)
			}
		})
	}
}

// leaves returns the names of all commands below cmd, without its own name.
func leaves(cmd *cobra.Command) (names []string) {
	everyCommand(cmd, func(c *cobra.Command) { names = append(names, path(c)) })
	return names
}

// fits requires that a line is JSON of the given shape. A key with ? may be missing, and an empty list
// fits any.
func fits(t *testing.T, shape, line string) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader([]byte(line)))
	var value any
	require.NoError(t, d.Decode(&value), line)
	require.False(t, d.More(), "one value on a line: %s", line)
	objects := []any{value}
	if strings.HasPrefix(shape, "[") {
		require.IsType(t, []any{}, value, line)
		objects, shape = value.([]any), strings.Trim(shape, "[]")
	}
	for _, o := range objects {
		has, ok := o.(map[string]any)
		require.True(t, ok, line)
		var known []string
		for key := range strings.FieldsSeq(strings.Trim(shape, "{}")) {
			name, optional := strings.CutSuffix(key, "?")
			known = append(known, name)
			if !optional {
				require.Contains(t, has, name, line)
			}
		}
		for name := range has {
			require.Contains(t, known, name, line)
		}
	}
}

// With -o json an error is also a line of JSON, and the exit status has its kind of error.
func TestErrorsAreJSONIfAnswersAre(t *testing.T) {
	db := newQueue(t, "mail")
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for _, c := range []struct {
		ctx    context.Context
		status int
		args   []string
	}{
		{t.Context(), exitFailed, []string{"stats", "--db", filepath.Join(t.TempDir(), "none.db")}},
		{t.Context(), exitFailed, []string{"peek", "--db", db, "post"}},
		{t.Context(), exitUsage, []string{"stats", "--db", db, "--wrong"}},
		{t.Context(), exitUsage, []string{"peek", "--db", db, "--state", "lost", "mail"}},
		{stopped, exitInterrupted, []string{"stats", "--db", db}},
	} {
		r := runIn(c.ctx, "", append([]string{"-o", "json"}, c.args...)...)
		require.Equal(t, c.status, r.status, c.args)
		require.Empty(t, r.out, c.args)
		fits(t, "{error status}", strings.TrimSuffix(r.err, "\n"))
		var reported failure
		require.NoError(t, json.Unmarshal([]byte(r.err), &reported))
		require.Equal(t, c.status, reported.Status)
		require.NotEmpty(t, reported.Error)

		r = runIn(c.ctx, "", c.args...)
		require.Equal(t, "chanq: "+reported.Error+"\n", r.err, "the same as text")
	}
}
