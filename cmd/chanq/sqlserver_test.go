package main

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/cmd/chanq/internal/doctor"
	"github.com/chanq/chanq/mssqltest"
)

func TestCommandsRunOnSQLServer(t *testing.T) {
	server := mssqltest.Start(t, mssqltest.Options{})
	run := func(args ...string) string { return succeed(t, "", append(args, "--dsn", server.DSN())...).out }
	require.Equal(t, "[]\n", run("stats", "-o", "json"))
	run("migrate", "mail")
	ids := succeed(t, "", "send", "mail", "one", "two", "three", "--dsn", server.DSN()).lines()
	require.Len(t, ids, 3)
	require.Contains(t, run("peek", "mail"), ids[2])
	require.Equal(t, "one\n", run("receive", "mail"))
	run("configure", "--max-attempts", "1", "mail")
	require.Equal(t, "two\n", run("receive", "--nack", "mail"))
	require.Contains(t, run("peek", "--state", "dead", "mail"), ids[1])
	require.Equal(t, "1 message redriven\n", run("redrive", "--yes", "mail"))
	run("pause", "mail")
	require.Contains(t, run("stats"), "paused")
	run("resume", "mail")
	require.Contains(t, run("top", "-n", "1"), "SQL Server 127.0.0.1, database test")
	require.Equal(t, "2 messages purged\n", run("purge", "--yes", "--state", "ready", "mail"))
	id := strings.TrimSpace(run("send", "mail", "six"))
	require.Equal(t, "1 message cancelled\n", run("cancel", "mail", id))
	id = strings.TrimSpace(run("send", "mail", "seven"))
	run("configure", "--max-attempts", "1", "mail")
	run("receive", "--nack", "mail")
	require.Equal(t, "1 message purged\n", run("purge", "mail", id))
	run("migrate", "post")
	require.Equal(t, "queue post dropped\n", run("drop", "post"))
	require.Equal(t, "there is no queue post\n", run("drop", "post"))

	seen := findings(t, succeed(t, "", "doctor", "-o", "json", "--dsn", server.DSN()))
	for _, check := range []string{"round trip", "clock", "durability", "messages"} {
		require.Equal(t, doctor.OK, seen[check].Status, "%s: %s", check, seen[check].Found)
	}

	u, err := url.Parse(server.DSN())
	require.NoError(t, err)
	password, _ := u.User.Password()
	t.Setenv("CHANQ_DSN", fmt.Sprintf(`Server=%s,%s;User ID=%s;Password="%s";Database=%s;Encrypt=%s`,
		u.Hostname(), u.Port(), u.User.Username(), password, u.Query().Get("database"), u.Query().Get("encrypt")))
	require.Regexp(t, `mail +0 +0 +0 +0 +0`, succeed(t, "", "stats").out)
}

func TestDemoRunsOnSQLServer(t *testing.T) {
	server := mssqltest.Start(t, mssqltest.Options{})
	r := succeed(t, "", "demo", "--dsn", server.DSN(), "--dir", folderOf(t, 150))
	require.Contains(t, r.out, "\nverified 150 files, 0 differences, 0 lost, 0 duplicated\n")
	require.NotContains(t, r.out+r.err, "emulator-password", "the password of the DSN")
}
