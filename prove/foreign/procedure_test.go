package foreign

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/sqlbatch"
)

// The program that prints the procedure and the view might not know the number of slots: they read it.
func TestTheProcedureAndTheViewUseTheSlotsOfTheQueue(t *testing.T) {
	testdb.OnEach(t, []testdb.Engine{testdb.EmulatorSocket, testdb.Postgres}, func(w *testdb.World) {
		s := &shop{World: w}
		q := testdb.QueueOf[order](w, "payments", chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 128}})
		s.face("payments", chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 16}})
		call := "SELECT chanq_payments__send('{}', key => '%s')"
		if w.Engine.Dialect.Name() == "sqlserver" {
			call = "EXEC dbo.chanq_payments__send N'{}', @key = N'%s'"
		}
		const n = 8
		high := 0
		for i := range n {
			s.Exec(fmt.Sprintf(call, fmt.Sprint("customer ", i)))
		}
		entries, err := testdb.Peek(s.Soon(), q, chanqadmin.StateReady, 2*n)
		require.NoError(s, err)
		require.Len(s, entries, n)
		for _, e := range entries {
			require.Equal(s, sqlbatch.SlotOf(e.Key, [16]byte{}, 128), e.Slot, e.Key)
			high += e.Slot / 64
		}
		require.Positive(s, high, "one message is in a slot that a smaller queue does not have")
		shown := 0
		require.NoError(s, s.DB.QueryRowContext(s.Soon(), "SELECT COUNT(*) FROM chanq_payments__messages").Scan(&shown))
		require.Equal(s, n, shown)
	})
}

func TestTheProcedureTakesEveryFieldOfAMessage(t *testing.T) {
	testdb.OnEach(t, []testdb.Engine{testdb.EmulatorSocket, testdb.Postgres}, func(w *testdb.World) {
		s := open(w.T, w.Engine)
		plain := []string{
			`SELECT chanq_orders__send('{"n": 1}', priority => NULL, delay => NULL, dedup_key => 'Łódź', ttl => interval '30 hours')`,
			`SELECT chanq_orders__send(bytes => '\x7b226e223a20327d', dedup_key => '')`,
		}
		ordered := []string{
			`SELECT chanq_payments__send('{"n": 1}', ttl => interval '30 hours', dedup_key => 'Łódź')`,
			`SELECT chanq_payments__send(bytes => '\x7b226e223a20327d', key => '')`,
		}
		if w.Engine.Dialect.Name() == "sqlserver" {
			plain = []string{
				`EXEC dbo.chanq_orders__send N'{"n": 1}', @priority = NULL, @delay_ms = NULL, @dedup_key = N'Łódź', @ttl_ms = 108000000`,
				`EXEC dbo.chanq_orders__send @body = 0x7b226e223a20327d, @dedup_key = N''`,
			}
			ordered = []string{
				`EXEC dbo.chanq_payments__send N'{"n": 1}', @ttl_ms = 108000000, @dedup_key = N'Łódź'`,
				`EXEC dbo.chanq_payments__send @body = 0x7b226e223a20327d, @key = N''`,
			}
		}
		for q, texts := range map[*chanq.Queue[order]][]string{s.orders: plain, s.payments: ordered} {
			for _, text := range texts {
				s.Exec(text)
			}
			entries, err := testdb.Peek(s.Soon(), q, chanqadmin.StateReady, 10)
			require.NoError(s, err)
			require.Len(s, entries, 2)
			for _, e := range entries {
				if e.DedupKey == "" {
					require.Equal(s, `{"n": 2}`, string(e.Body))
					require.True(s, e.ExpiresAt.IsZero())
					require.Empty(s, e.Key)
					continue
				}
				require.Equal(s, chanq.PriorityNormal, e.Priority)
				require.WithinDuration(s, e.EnqueuedAt.Add(30*time.Hour), e.ExpiresAt, time.Minute)
			}
			p, err := q.Producer(t.Context(), chanq.ProducerConfig{})
			require.NoError(s, err)
			receipt, err := p.Send(s.Soon(), chanq.Message[order]{DedupKey: "Łódź"})
			require.NoError(s, err)
			require.True(s, receipt.Duplicate, "the key is equal to Go's")
			require.NoError(s, p.Close(s.Soon()))
		}
	})
}
