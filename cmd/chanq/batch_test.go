package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqjobs"
)

// sentBatch sends a batch of two jobs to the queue mail, and returns its ID.
func sentBatch(t *testing.T, db string) string {
	t.Helper()
	succeed(t, "", "jobs", "migrate", "--db", db)
	c, err := (&app{}).open(t.Context(), target{file: db}, mustExist)
	require.NoError(t, err)
	defer c.Close()
	q, err := chanqjobs.Open(t.Context(), c.DB, "mail", chanq.Config{})
	require.NoError(t, err)
	kind, batch := chanqjobs.Define[int]("piece"), chanqjobs.NewBatch()
	require.NoError(t, chanq.InTx(t.Context(), c.DB, func(ctx context.Context, tx *sql.Tx) error {
		return chanqjobs.NewBatches(q).SendTx(ctx, tx, batch, chanqjobs.Define[string]("report").New("x"), kind.New(1), kind.New(2))
	}))
	return batch.String()
}

func TestBatchesAreListedAndCounted(t *testing.T) {
	db := newQueue(t, "mail")
	require.Contains(t, fail(t, exitFailed, "batch", "list", "--db", db), "run chanqjobs.Migrate, or the command: chanq jobs migrate")
	require.Equal(t, "the tables of jobs are up to date\n", succeed(t, "", "jobs", "migrate", "--db", db).out)
	require.Equal(t, "[]\n", succeed(t, "", "batch", "list", "--db", db, "-o", "json").out)
	id := sentBatch(t, db)
	lines := succeed(t, "", "batch", "list", "--db", db).lines()
	require.Len(t, lines, 2)
	require.Regexp(t, `^`+id+` +mail +2 +report +20\d\d-\d\d-\d\dT.*Z +-$`, lines[1])
	sentBatch(t, db)
	require.Len(t, succeed(t, "", "batch", "list", "--db", db, "-n", "1").lines(), 2)

	succeed(t, "", "configure", "--db", db, "--max-attempts", "1", "mail")
	succeed(t, "", "receive", "--nack", "--db", db, "mail")
	require.Regexp(t, `^mail +2 +1 +1 +report +20.*Z +-$`, succeed(t, "", "batch", "status", "--db", db, id).lines()[1])
	var s batchLine
	require.NoError(t, json.Unmarshal([]byte(succeed(t, "", "batch", "status", "--db", db, "-o", "json", id).out), &s))
	require.Equal(t, []int{2, 1, 1}, []int{s.Sent, *s.Left, *s.Dead})
	require.Nil(t, s.Ended)

	none := "0199c0de-0000-8000-8000-000000000000"
	require.Contains(t, fail(t, exitFailed, "batch", "status", "--db", db, none), "chanq: status batch "+none+": no such batch")
	require.Contains(t, fail(t, exitUsage, "batch", "status", "--db", db, "x"), `"x" is not the ID of a batch`)
	require.Contains(t, fail(t, exitUsage, "batch", "list", "--db", db, "-n", "0"), "--number")
}
