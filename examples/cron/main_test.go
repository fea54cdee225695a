package main

import (
	"bytes"
	"database/sql"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq/embedded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRemindersAreShownOnceWhenTheyAreDue(t *testing.T) {
	db, err := embedded.Open(":memory:")
	require.NoError(t, err)
	defer db.Close()
	show := func(args ...string) string {
		var out bytes.Buffer
		require.NoError(t, command(t.Context(), db, &out, args))
		return out.String()
	}
	show("add", "0s", "water the plants")
	show("add", "1h", "later")
	require.Regexp(t, `^water the plants \(since .*\)\n$`, show("run"))
	require.Empty(t, show("run"))
	require.Equal(t, 1, number(t, db, "SELECT COUNT(*) FROM chanq_reminders"))
}

func TestAReminderThatCannotBeShownComesAgain(t *testing.T) {
	db, err := embedded.Open(":memory:")
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, command(t.Context(), db, io.Discard, []string{"add", "0s", "x"}))
	read, write := io.Pipe()
	require.NoError(t, read.Close())
	require.NoError(t, command(t.Context(), db, write, []string{"run"}))
	require.Equal(t, 1, number(t, db, "SELECT COUNT(*) FROM chanq_reminders WHERE attempts = 1 AND last_error LIKE '%closed pipe%'"))
}

func TestWrongUsageIsSaid(t *testing.T) {
	db, err := embedded.Open(":memory:")
	require.NoError(t, err)
	defer db.Close()
	require.ErrorContains(t, command(t.Context(), db, io.Discard, nil), "usage: cron add DELAY TEXT")
	require.ErrorContains(t, command(t.Context(), db, io.Discard, []string{"add", "soon", "x"}), "soon")
}

func number(t *testing.T, db *sql.DB, query string) (n int) {
	require.NoError(t, db.QueryRow(query).Scan(&n))
	return n
}
