package chanqfindings_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqfindings"
)

// oneAMinute returns the figures of a queue that had one message a minute, each leased for a moment, until the last one got stuck.
func oneAMinute(kind chanq.Kind, stuckFor time.Duration) chanqfindings.Figures {
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	consumer := chanq.ID{7}
	f := chanqfindings.Figures{
		Queue: "orders", At: now, Now: now, Spec: chanq.Spec{Kind: kind}, Stats: chanqadmin.Stats{Leased: 1, Limit: chanqadmin.StatsLimit},
		Consumers: []chanqadmin.ConsumerInfo{{ID: consumer, Name: "web-6", Heard: now}},
		Leased:    []chanqadmin.Entry{{Consumer: consumer}},
	}
	if kind == chanq.KindPlain { // a row of an ordered queue does not say it
		f.Leased[0].HeldSince = now.Add(-stuckFor)
	}
	for ago := 10 * time.Minute; ago > 0; ago -= chanqadmin.StepFine {
		s := chanqadmin.Sample{At: now.Add(-ago), Step: chanqadmin.StepFine, Counted: true}
		if ago <= stuckFor {
			s.Leased = 1
		} else if ago%time.Minute == 0 {
			s.Delivered, s.Acked = 1, 1
		}
		f.Recent = append(f.Recent, s)
	}
	return f
}

func TestAStuckMessageDoesNotMakeItsOwnLimitLonger(t *testing.T) {
	for _, kind := range []chanq.Kind{chanq.KindPlain, chanq.KindOrdered} {
		for after := chanqadmin.StepFine; after < 15*time.Minute; after += chanqadmin.StepFine {
			f := oneAMinute(kind, after)
			found := chanqfindings.Of(f, chanqfindings.Limits{}, f.At)
			if after < time.Minute {
				require.Empty(t, found, "%v after %v: %v", kind, after, found)
			} else if after > 90*time.Second {
				require.Len(t, found, 1, "%v after %v", kind, after)
				require.Equal(t, chanqfindings.Stuck, found[0].Kind)
			}
		}
	}
}

// A program starts, handles a few messages, and then all its calls hang, within ten seconds.
func TestHandlersThatHangSoonAfterTheStartAreStuck(t *testing.T) {
	f := oneAMinute(chanq.KindPlain, 3*time.Minute)
	f.Stats.Leased = 1
	first := len(f.Recent) - int(3*time.Minute/chanqadmin.StepFine) - 1 // in which the messages were taken
	for i := range f.Recent {
		s := &f.Recent[i]
		s.Delivered, s.Acked, s.Leased = 0, 0, 0
		if i >= first {
			s.Leased = 264
		}
	}
	f.Leased[0].HeldSince = f.Recent[first].At.Add(time.Second)
	f.Recent[first].Delivered, f.Recent[first].Acked = 280, 16
	found := chanqfindings.Of(f, chanqfindings.Limits{}, f.At)
	require.Len(t, found, 1)
	require.Equal(t, chanqfindings.Stuck, found[0].Kind)
}

// Ordered messages, one at a time, that usually take two minutes.
func TestSlowOrderedHandlersAreNotStuck(t *testing.T) {
	f := oneAMinute(chanq.KindOrdered, 100*time.Second)
	for i := range f.Recent {
		f.Recent[i].Leased, f.Recent[i].Delivered, f.Recent[i].Acked = 1, 0, 0
	}
	for _, i := range []int{1, 14, 26, 38, 49} {
		f.Recent[i].Delivered, f.Recent[i].Acked = 1, 1
	}
	require.Empty(t, chanqfindings.Of(f, chanqfindings.Limits{}, f.At))
	for i := range f.Recent {
		f.Recent[i].Leased = 0
	}
	require.Len(t, chanqfindings.Of(f, chanqfindings.Limits{}, f.At), 1)
}

// The procedures in SQL have no row of a consumer.
func TestAQueueThatIsConsumedHasAConsumer(t *testing.T) {
	f := oneAMinute(chanq.KindPlain, 0)
	f.Consumers, f.Leased, f.Stats.Leased, f.Stats.Ready = nil, nil, 0, 3
	kindsOf := func() (list kinds) {
		for _, one := range chanqfindings.Of(f, chanqfindings.Limits{}, f.At) {
			list = append(list, one.Kind)
		}
		return list
	}
	require.Empty(t, kindsOf(), "a message was delivered a minute ago")
	f.Recent = f.Recent[:50]
	require.Equal(t, kinds{chanqfindings.NoConsumer}, kindsOf())
	f.Leased = []chanqadmin.Entry{{}}
	require.Empty(t, kindsOf(), "a message is leased")
}

func TestFailuresBeginWithAFailure(t *testing.T) {
	f := oneAMinute(chanq.KindPlain, 0)
	f.Leased, f.Stats.Leased = nil, 0
	for i := range f.Recent {
		f.Recent[i].Acked, f.Recent[i].Delivered = 0, 0
	}
	n := len(f.Recent)
	f.Recent[n-1].Nacked, f.Recent[n-4].Nacked = 15, 15
	found := chanqfindings.Of(f, chanqfindings.Limits{}, f.At)
	require.Len(t, found, 1)
	require.Equal(t, chanqfindings.Failing, found[0].Kind)
	require.Equal(t, f.Recent[n-4].At, found[0].Since)
}
