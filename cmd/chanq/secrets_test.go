package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Commands that do not print bodies never contain one in their output, whether they succeed or
// fail.
func TestBodiesAreNotPrinted(t *testing.T) {
	const secret = "S3CRET-body"
	db := newQueue(t, "mail")
	said := func(args ...string) {
		r := runIn(t.Context(), secret+"\n", append(args, "--db", db)...)
		require.NotContains(t, r.out+r.err, secret, args)
		require.NotEmpty(t, r.out+r.err, args)
	}
	said("send", "mail", secret)
	said("send", "mail", secret, "--header", "token="+secret)
	said("send", "mail", secret, "--header", secret)
	said("send", "mail", secret, "--delay", "1h")
	said("send", "mail", secret, "--dedup-key", "k")
	said("send", "mail", secret, "--dedup-key", "k")
	said("send", "mail", secret, "--priority", "nonsense")
	said("send", "mail", secret, "--delay", "-1s")
	said("send", "missing", secret)
	said("stats")
	said("stats", "missing")
	said("top", "-n", "1")
	said("pause", "mail")
	said("resume", "mail")
	said("peek", "--state", "dead", "mail")
	said("redrive", "--yes", "mail")
	said("purge", "--yes", "--state", "dead", "mail")
	r := runIn(t.Context(), "", "send", "mail", secret, "--db", filepath.Join(t.TempDir(), "missing.db"))
	require.NotContains(t, r.out+r.err, secret)
	require.Contains(t, succeed(t, "", "receive", "mail", "--db", db).out, secret, "receive prints bodies")
}
