package main

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/embedded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEachKindHasItsHandlerUntilTheSignal(t *testing.T) {
	db, err := embedded.Open(":memory:")
	require.NoError(t, err)
	defer db.Close()
	ctx, signal := context.WithTimeout(t.Context(), time.Minute)
	defer signal()
	require.NoError(t, chanq.Migrate(ctx, db, "jobs", chanq.Config{}))
	jobs, err := chanq.Open[json.RawMessage](ctx, db, "jobs", chanq.Config{})
	require.NoError(t, err)
	message := func(kind, body string) chanq.Message[json.RawMessage] {
		return chanq.Message[json.RawMessage]{Type: kind, Body: json.RawMessage(body)}
	}
	_, err = jobs.Send(ctx, message("sweep", `{}`), message("cleanup", `[]`), message("cleanup", `7`), message("welcome", `{"Name": "Ada"}`))
	require.NoError(t, err)
	var printed strings.Builder
	log.SetOutput(&printed)
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, db) }()
	admin, err := chanqadmin.Open(ctx, db, "jobs", chanq.Config{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		stats, err := admin.Stats(ctx)
		return err == nil && stats.Dead == 1 && stats.Scheduled == 1 && stats.Ready+stats.Leased == 0
	}, time.Minute, time.Millisecond)
	signal()
	require.NoError(t, <-ended)
	log.SetOutput(io.Discard)
	for _, want := range []string{"nothing is older than 30 days", "nothing is older than 7 days", "welcome, Ada", "cause=undecodable"} {
		require.Contains(t, printed.String(), want)
	}
}
