package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/cmd/chanq/internal/doctor"
	"github.com/chanq/chanq/prove/testdb/pgtest"
)

func TestCommandsRunOnPostgreSQL(t *testing.T) {
	dsn := pgtest.URL(t)
	run := func(args ...string) string { return succeed(t, "", append(args, "--dsn", dsn)...).out }
	require.Equal(t, "[]\n", run("stats", "-o", "json"))
	run("migrate", "mail")
	ids := succeed(t, "", "send", "mail", "one", "two", "three", "--dsn", dsn).lines()
	require.Len(t, ids, 3)
	require.Equal(t, "2 messages sent\n", succeed(t, "four\nfive\n", "send", "mail", "--dsn", dsn).out)
	require.Contains(t, run("peek", "mail"), ids[2])
	require.Equal(t, "one\n", run("receive", "mail"))
	run("configure", "--max-attempts", "1", "mail")
	require.Equal(t, "two\n", run("receive", "--nack", "mail"))
	require.Equal(t, "three\n", run("receive", "--follow", "-n", "1", "mail"))
	require.Contains(t, run("peek", "--state", "dead", "mail"), ids[1])
	require.Equal(t, "1 message redriven\n", run("redrive", "--yes", "mail"))
	run("pause", "mail")
	require.Contains(t, run("stats"), "paused")
	run("resume", "mail")
	require.Contains(t, run("top", "-n", "1"), "PostgreSQL ")
	require.Equal(t, "3 messages purged\n", run("purge", "--yes", "--state", "ready", "mail"))
	id := strings.TrimSpace(run("send", "mail", "six"))
	require.Equal(t, "1 message cancelled\n", run("cancel", "mail", id))
	id = strings.TrimSpace(run("send", "mail", "seven"))
	run("configure", "--max-attempts", "1", "mail")
	run("receive", "--nack", "mail")
	require.Equal(t, "1 message purged\n", run("purge", "mail", id))
	run("migrate", "post")
	require.Equal(t, "queue post dropped\n", run("drop", "post"))
	require.Equal(t, "there is no queue post\n", run("drop", "post"))

	require.Contains(t, run("consumers"), "QUEUE")
	well := findings(t, succeed(t, "", "doctor", "-o", "json", "--dsn", dsn))
	for _, check := range []string{"round trip", "clock", "version", "pooler", "connections", "autovacuum", "dead rows", "durability", "messages"} {
		require.Equal(t, doctor.OK, well[check].Status, "%s: %s", check, well[check].Found)
	}
	require.Equal(t, "this login may send, consume, operate, note the history", well["rights"].Found)
	ill := findings(t, runIn(t.Context(), "", "doctor", "-o", "json", "--dsn", dsn+"&synchronous_commit=off"))
	require.Equal(t, doctor.Failure, ill["durability"].Status)

	// A session that confirms commits before they are on disk.
	loose := dsn + "&synchronous_commit=off"
	for _, args := range [][]string{{"migrate", "mail"}, {"send", "mail", "x"}} {
		said := fail(t, exitFailed, append(args, "--dsn", loose)...)
		require.Contains(t, said, "synchronous_commit is off")
		require.Contains(t, said, "give --not-durable")
		succeed(t, "", append(args, "--not-durable", "--dsn", loose)...)
	}
	require.Equal(t, "x\n", succeed(t, "", "receive", "mail", "--dsn", loose).out, "reading and receiving store nothing")

	t.Setenv("CHANQ_DSN", pgtest.DSN(t)) // another database, with keywords
	succeed(t, "", "migrate", "mail")
	require.Regexp(t, `mail +0 +0 +0 +0 +0`, succeed(t, "", "stats").out)
}

func TestDemoRunsOnPostgreSQL(t *testing.T) {
	dsn, dir := pgtest.URL(t), folderOf(t, 150)
	for range 2 {
		r := succeed(t, "", "demo", "--dsn", dsn, "--dir", dir)
		require.Contains(t, r.out, "\nverified 150 files, 0 differences, 0 lost, 0 duplicated\n")
	}
	r := succeed(t, "", "demo", "--dsn", dsn, "--fresh", "--schema", "public")
	require.Contains(t, r.out, "\nverified 150 files, 0 differences, 0 lost, 0 duplicated\n", "the folder is that of the demo in the database")
}

// The sessions of the web UI have jit off, unless the DSN sets it. If a pooler does not accept the
// setting, they are opened without it.
func TestTheWebUITurnsJITOff(t *testing.T) {
	dsn := pgtest.URL(t)
	config, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	is := func(dsn, want string) {
		t.Helper()
		a := &app{dsn: dsn}
		c, err := a.connectPage(t.Context())
		require.NoError(t, err)
		defer c.Close()
		var jit string
		require.NoError(t, c.QueryRowContext(t.Context(), "SHOW jit").Scan(&jit))
		require.Equal(t, want, jit, dsn)
	}
	is(dsn, "off")
	is(dsn+"&jit=on", "on")
	is(dsn+"&options=-c%20jit%3Don", "on")
	pooler := pgtest.StartPooler(t, config, "session").Config()
	is(fmt.Sprintf("host=%s port=%d user=%s dbname=%s sslmode=disable", pooler.Host, pooler.Port, pooler.User, pooler.Database), "on")
}
