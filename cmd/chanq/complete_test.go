package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/cmd/chanq/internal/doctor"
	"github.com/chanq/chanq/cmd/chanq/internal/tryout"
)

func TestCompletionListsTheQueues(t *testing.T) {
	db := newQueue(t, "mail")
	succeed(t, "", "migrate", "--db", db, "post", "mole")
	completed := func(args ...string) []string {
		lines := succeed(t, "", append([]string{"__complete"}, args...)...).lines()
		require.Equal(t, ":4", lines[len(lines)-1], "no files")
		return lines[:len(lines)-1]
	}
	require.Equal(t, []string{"mail", "mole"}, completed("stats", "--db", db, "m"))
	require.Equal(t, []string{"mole"}, completed("stats", "--db", db, "mail", "m"), "each once")
	require.Empty(t, completed("peek", "--db", db, "mail", ""), "it takes one")
	require.Empty(t, completed("migrate", "--db", db, "m"), "it creates new queues")
	require.Empty(t, completed("stats", "--db", db+".none", "m"))
	require.Equal(t, []string{"ready", "scheduled", "leased", "dead", "done"}, completed("peek", "--db", db, "--state", ""))
	require.Equal(t, []string{"text", "json"}, completed("stats", "-o", ""))
	require.Contains(t, succeed(t, "", "completion", "bash").out, "__start_chanq")
}

// bash itself requests the completions of a line.
func TestBashCompletesACommandLine(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("NOT TESTED in bash: symbolic links need a privilege")
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("NOT TESTED in bash: it is not installed")
	}
	db := newQueue(t, "mail")
	succeed(t, "", "migrate", "--db", db, "mole")
	dir := t.TempDir()
	script := filepath.Join(dir, "chanq.bash")
	require.NoError(t, os.Symlink(program(t), filepath.Join(dir, "chanq")))
	require.NoError(t, os.WriteFile(script, []byte(succeed(t, "", "completion", "bash").out), 0o600))
	// The functions of Debian's package bash-completion that the script uses.
	const helpers = `_get_comp_words_by_ref() { words=("${COMP_WORDS[@]}"); cword=$COMP_CWORD; cur=${COMP_WORDS[COMP_CWORD]}; prev=${COMP_WORDS[COMP_CWORD-1]}; }
__ltrim_colon_completions() { :; }
PATH=$1:$PATH; source "$2"; shift 2
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}; COMP_TYPE=9; COMP_KEY=9
__start_chanq; printf '%s\n' "${COMPREPLY[@]}"`
	for line, want := range map[string][]string{
		"chanq do":                          {"doctor"},
		"chanq stats --db " + db + " m":     {"mail", "mole"},
		"chanq stats --db " + db + " mail ": {"mole"},
		"chanq stats -o j":                  {"json"},
		"chanq peek --state sch":            {"scheduled"},
	} {
		words := strings.Split(line, " ")
		cmd := exec.Command(bash, append([]string{"--norc", "-c", helpers, "bash", dir, script}, words...)...)
		out, err := cmd.Output() // outside of a completion bash prints a warning on stderr
		require.NoError(t, err, line)
		require.Equal(t, want, strings.Fields(string(out)), line)
	}
}

func TestEachCommandHasAManualPage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	require.Contains(t, succeed(t, "", "man", dir).out, " pages in ")
	page, err := os.ReadFile(filepath.Join(dir, "chanq-redrive.1"))
	require.NoError(t, err)
	require.Contains(t, string(page), ".SH SYNOPSIS")
	first, err := os.ReadFile(filepath.Join(dir, "chanq.1"))
	require.NoError(t, err)
	require.Contains(t, string(first), "chanq-doctor(1)")
	require.NotContains(t, string(first), time.Now().Format("Jan 2006")+" by")
	man, err := exec.LookPath("man")
	if err != nil {
		t.Skip("NOT TESTED by man: it is not installed")
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	require.NoError(t, err)
	cmd := exec.Command(man, append([]string{"--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z"}, pages...)...)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "MANROFFSEQ=")
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	require.NoError(t, cmd.Run(), complaints.String())
	require.Empty(t, complaints.String())
}

func findings(t *testing.T, r ran) map[string]doctor.Finding {
	t.Helper()
	var list []doctor.Finding
	require.NoError(t, json.Unmarshal([]byte(r.out), &list))
	all := map[string]doctor.Finding{}
	for _, f := range list {
		all[f.Check] = f
	}
	return all
}

func TestDoctorFindsAQueueWithoutConsumers(t *testing.T) {
	db := newQueue(t, "mail")
	well := findings(t, succeed(t, "", "doctor", "--db", db, "-o", "json"))
	for _, check := range []string{"round trip", "clock", "version", "journal", "size", "log", "durability", "messages"} {
		require.Equal(t, doctor.OK, well[check].Status, check)
	}
	succeed(t, "", "send", "--db", db, "mail", "x")
	r := runIn(t.Context(), "", "doctor", "--db", db, "-o", "json")
	require.Equal(t, exitFailed, r.status)
	f := findings(t, r)["no-consumer"]
	require.Equal(t, []any{doctor.Failure, "mail"}, []any{f.Status, f.Queue})
	require.Contains(t, f.Found, "no consumer runs; 1 message waits")

	text := runIn(t.Context(), "", "doctor", "--db", db)
	require.Contains(t, text.out, "X FAIL    mail: no-consumer: no consumer runs")
	require.Contains(t, text.out, "\n          → start a consumer")
	quiet := runIn(t.Context(), "", "doctor", "--quiet", "--db", db)
	require.Equal(t, exitFailed, quiet.status)
	require.Len(t, quiet.lines(), 1)
	require.Regexp(t, `^X FAIL    mail: no-consumer: no consumer runs; 1 message waits, .* → start a consumer;`, quiet.out)
	succeed(t, "", "pause", "--db", db, "mail")
	paused := findings(t, succeed(t, "", "doctor", "--db", db, "-o", "json", "mail"))["paused"]
	require.Equal(t, "if the reason no longer applies: Resume in the web UI, or chanq resume mail", paused.Remedy)
	require.Empty(t, succeed(t, "", "doctor", "--quiet", "--db", newQueue(t, "mail")).out)
	for _, flag := range []string{"--stuck", "--late"} {
		for _, command := range []string{"doctor", "top"} {
			r := runIn(t.Context(), "", command, "--db", db, flag, "-1s")
			require.Equal(t, exitUsage, r.status)
			require.Contains(t, r.err, "must be 0 (")
		}
	}
	require.Contains(t, findings(t, runIn(t.Context(), "", "doctor", "--db", db, "-o", "json", "nothing"))["tables"].Remedy, "chanq migrate nothing")
}

func TestABenchLeavesNothingBehind(t *testing.T) {
	db := filepath.Join(t.TempDir(), "bench.db")
	least := 0.0
	for length := 400 * time.Millisecond; least == 0 && length < time.Minute; length *= 4 { // a busy machine stores nothing in a short time
		var r tryout.Result
		require.NoError(t, json.Unmarshal([]byte(succeed(t, "", "bench", "--db", db, "--for", length.String(), "-o", "json").out), &r))
		least = min(r.RoundTrip, r.Stored, r.Bulk, r.Consumed, r.Paced, r.Median, r.P99)
	}
	require.Positive(t, least)
	require.Equal(t, "[]\n", succeed(t, "", "stats", "--db", db, "-o", "json").out)
	interrupted(t, db)
	require.Contains(t, fail(t, exitUsage, "bench", "--db", db, "--for", "1ms"), "--for is 1ms")
}

// interrupted begins a measurement in a database with a queue, and is interrupted during it.
func interrupted(t *testing.T, db string) {
	t.Helper()
	succeed(t, "", "migrate", "--db", db, "mail")
	id := succeed(t, "", "send", "--db", db, "mail", "x").lines()[0]
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan ran, 1)
	go func() { ended <- runIn(ctx, "", "bench", "--db", db, "--for", "1h") }()
	require.Eventually(t, func() bool { // its queue has messages
		var list []statsLine
		r := runIn(t.Context(), "", "stats", "--db", db, "-o", "json")
		return json.Unmarshal([]byte(r.out), &list) == nil && slices.ContainsFunc(list, func(s statsLine) bool { return s.Queue != "mail" && s.Ready > 0 })
	}, time.Minute, 10*time.Millisecond)
	cancel()
	require.Equal(t, exitInterrupted, (<-ended).status)
	require.Equal(t, "mail", succeed(t, "", "stats", "--db", db).lines()[1][:4])
	require.Len(t, succeed(t, "", "stats", "--db", db).lines(), 2, "its own queue is gone, and no other")
	require.Contains(t, succeed(t, "", "peek", "--db", db, "mail").out, id)
	succeed(t, "", "drop", "--db", db, "--with-messages", "--yes", "mail")
}
