package main

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqjobs"
	"github.com/chanq/chanq/embedded"
)

func TestPeekShowsTheProgressOfAJob(t *testing.T) {
	path := filepath.Join(t.TempDir(), "queue.db")
	succeed(t, "", "migrate", "--db", path, "mail")
	db, err := embedded.Open(path)
	require.NoError(t, err)
	defer db.Close()
	ctx := context.Background()
	mail, err := chanq.Open[string](ctx, db, "mail", chanq.Config{})
	require.NoError(t, err)
	receipts, err := mail.Send(ctx, chanq.Msg("hello"))
	require.NoError(t, err)
	id := receipts[0].ID.String()
	require.NotContains(t, succeed(t, "", "peek", "--db", path, "--id", id, "mail").out, "progress")
	require.NoError(t, chanqjobs.Migrate(ctx, db, chanq.Config{}))
	c, err := mail.Consume(ctx, chanq.ConsumerConfig{})
	require.NoError(t, err)
	l := <-c.C()
	require.NoError(t, chanqjobs.ReporterOf(mail, l).Report(ctx, 0.42, "page 7"))
	require.Regexp(t, `progress at .*: 42 %, page 7`, succeed(t, "", "peek", "--db", path, "--id", id, "mail").out)
	require.Regexp(t, `"progress":{"at":"[^"]+Z","done":0.42,"note":"page 7"}`, succeed(t, "", "peek", "--db", path, "-o", "json", "--id", id, "mail").out)
	_, err = db.ExecContext(ctx, "UPDATE chanq__tables SET version = 9, min_version = 9")
	require.NoError(t, err)
	shown := succeed(t, "", "peek", "--db", path, "--id", id, "mail").out
	require.Contains(t, shown, id, "a progress that cannot be read hides no message")
	require.NotContains(t, shown, "progress")
	require.NoError(t, l.Ack())
	require.NoError(t, c.Shutdown(ctx))
}
