package main

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEachKindHasItsHandlerUntilTheSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := chanqtest.DB(t)
		require.NoError(t, chanq.Migrate(t.Context(), db, "jobs", chanq.Config{}))
		jobs, err := chanq.Open[json.RawMessage](t.Context(), db, "jobs", chanq.Config{}) // as another program sends
		require.NoError(t, err)
		message := func(kind, body string) chanq.Message[json.RawMessage] {
			return chanq.Message[json.RawMessage]{Type: kind, Body: json.RawMessage(body)}
		}
		_, err = jobs.Send(t.Context(), message("sweep", `{}`), message("cleanup", `[]`), message("cleanup", `7`), message("welcome", `{"Name": "Ada"}`))
		require.NoError(t, err)
		var printed strings.Builder
		log.SetOutput(&printed)
		defer log.SetOutput(io.Discard)
		chanqtest.Drain(t, func(ctx context.Context) error { return run(ctx, db) })
		for _, want := range []string{"nothing is older than 30 days", "nothing is older than 7 days", "welcome, Ada", "cause=undecodable"} {
			require.Contains(t, printed.String(), want)
		}
		left := chanqtest.Sent(t, jobs) // it waits for a newer program
		require.Len(t, left, 1)
		require.Equal(t, "sweep", left[0].Type)
	})
}
