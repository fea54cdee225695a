package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/embedded"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m)
}

func TestEachTypeHasItsHandlerUntilTheSignal(t *testing.T) {
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
	_, err = jobs.Send(ctx, message("sweep", `{}`), message("invoice", `{"Number": 1}`), message("cleanup", `[]`), message("cleanup", `{"Days": 30}`),
		message("invoice", `{"Number": 2, "Cents": 500}`), message("welcome", `{"Name": "Ada"}`))
	require.NoError(t, err)
	printed := make(chan string, 6)
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, db, func(format string, args ...any) { printed <- fmt.Sprintf(format, args...) })
	}()
	require.ElementsMatch(t, []string{"nothing is older than 30 days", "invoice 2: 500 cents", "welcome, Ada"}, []string{<-printed, <-printed, <-printed})
	admin, err := chanqadmin.Open(ctx, db, "jobs", chanq.Config{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		stats, err := admin.Stats(ctx)
		return err == nil && stats.Dead == 3
	}, time.Minute, time.Millisecond)
	signal()
	require.NoError(t, <-ended)
	empty, err := jobs.Empty(t.Context())
	require.NoError(t, err)
	require.True(t, empty)
}
