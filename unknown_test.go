package chanq

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/base"
	"github.com/chanq/chanq/internal/lease"
)

func TestAnAckOfUnknownOutcomeIsDoneOnlyWhileTheLeaseRuns(t *testing.T) {
	q := openTestQueue[string](t, Config{})
	p := testProducer(t, q, ProducerConfig{})
	for _, test := range []struct {
		name string
		late bool
	}{{"while it runs", false}, {"after it ran out", true}} {
		t.Run(test.name, func(t *testing.T) {
			_, err := p.Send(t.Context(), Message[string]{Body: "x"})
			require.NoError(t, err)
			c := testConsumer(t, q, ConsumerConfig{})
			delivered := <-c.C()
			l := delivered.lease
			_, err = q.Cancel(t.Context(), delivered.ID) // whichever attempt deleted the row
			require.NoError(t, err)
			require.True(t, l.Take(lease.Ack))
			if test.late {
				l.Period.Begin(base.Now(), 0)
			}
			l.MaybeApplied = true
			require.NoError(t, l.Home.Owner.Settle(t.Context(), l))
			err = delivered.Wait(soon(t))
			if !test.late {
				require.NoError(t, err)
				return
			}
			var op *OpError
			require.ErrorAs(t, err, &op)
			require.True(t, op.Unknown)
		})
	}
}
