package chanqjobs_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqjobs"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/child"
)

func TestMain(m *testing.M) {
	child.Main(map[string]child.Part{"batches": child.Does(runBatches), "deaths": child.Does(noticeDeaths), "once": child.Does(callOnce)})
	goleak.VerifyTestMain(m)
}

// engines are the three databases; PostgreSQL in the long tier.
var engines = []testdb.Engine{testdb.Memory, testdb.Emulator, testdb.Postgres}

// inBubbles are those where hours pass immediately.
var inBubbles = engines[:2]

type mail struct {
	Order int
	To    string
}

var (
	welcome = chanqjobs.Define[mail]("welcome")
	charge  = chanqjobs.Define[int]("charge")
	note    = chanqjobs.Define[string]("note")
)

// jobsOf migrates and opens a queue of jobs.
func jobsOf(w *testdb.World, name string, cfg chanq.Config) *chanq.Queue[chanqjobs.Job] {
	w.Helper()
	cfg.Codec = chanqjobs.Codec(cfg.Codec)
	return testdb.QueueOf[chanqjobs.Job](w, name, cfg)
}

// handle handles the jobs of a queue until n are settled in a way that lasts: acked or dead.
func handle(w *testdb.World, q *chanq.Queue[chanqjobs.Job], n int, fn chanq.Handler[chanqjobs.Job], cfg chanq.ConsumerConfig) {
	w.Helper()
	c := testdb.Start(w, q, cfg)
	ended := make(chan error, 1)
	go func() { ended <- c.Handle(4, fn) }()
	w.Eventually("all jobs are acked or dead", func() bool { s := c.Stats(); return s.Acked+s.Dead >= int64(n) })
	c.Stop()
	require.NoError(w, testdb.Receive(w, ended, "Handle returns"))
}

// soon makes retries immediate.
func soon(*chanq.Delivery, error) time.Duration { return 0 }

func nothing[T any](context.Context, *chanq.Lease[T]) error { return nil }
