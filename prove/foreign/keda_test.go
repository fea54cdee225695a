package foreign

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
)

func TestKEDACountsReadyAndLeasedMessages(t *testing.T) {
	testdb.OnEach(t, []testdb.Engine{testdb.EmulatorSocket, testdb.Postgres}, func(w *testdb.World) {
		s := open(w.T, w.Engine)
		testdb.Send(s, s.orders, chanq.Message[order]{Priority: chanq.PriorityUrgent}, chanq.Message[order]{Priority: chanq.PriorityLow}, chanq.Message[order]{Delay: time.Hour})
		testdb.Send(s, s.payments, chanq.Message[order]{Key: "a"}, chanq.Message[order]{})
		for _, q := range []*chanq.Queue[order]{s.orders, s.payments} {
			testdb.Lease(s, q, 1, time.Minute)
		}
		queries := 0
		for _, b := range blocks(s.T, s.Engine.Dialect.Name()) {
			if !strings.HasPrefix(strings.ToLower(b.text), "select count(") {
				continue
			}
			queries++
			n := 0
			require.NoError(s, s.DB.QueryRowContext(s.Soon(), b.text).Scan(&n), b.text)
			require.Equal(s, 2, n, b.text)
		}
		require.Equal(s, 2, queries)
	})
}
