package chanq

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWithoutAHookACallOfAHandlerAllocatesNothing(t *testing.T) {
	c, d := &consumer{queue: &queue{}}, &Delivery{}
	require.Zero(t, testing.AllocsPerRun(100, func() { c.handled(d, HandlerOutcome{Kind: OutcomeAck}, 1, nil) }))
	l, fn := &Lease[string]{}, Handler[string](func(context.Context, *Lease[string]) error { return nil })
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = invoke(c, l, fn) }), "nor does one without Middleware")
}
