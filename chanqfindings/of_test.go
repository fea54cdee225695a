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

// A role might lack the permission to be listed.
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
	f.Stats.OldestReady = 10 * time.Second
	require.Equal(t, kinds{chanqfindings.NoConsumer}, kindsOf(), "none was since")
	f.Stats.OldestReady = 0
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

// Each sentence says who and since when, and each remedy has what the web UI can do, and the command.
func TestEachSentenceSaysWhoAndSinceWhen(t *testing.T) {
	calm := func(kind chanq.Kind) chanqfindings.Figures {
		f := oneAMinute(kind, 0)
		f.Leased, f.Stats.Leased = nil, 0
		return f
	}
	now := calm(chanq.KindPlain).Now
	web6, web7, web8 := chanq.ID{6}, chanq.ID{7}, chanq.ID{8}
	for name, c := range map[string]struct {
		kind  chanq.Kind
		set   func(*chanqfindings.Figures)
		found chanqfindings.Kind
		text  string
		since time.Duration
		says  []string // in the remedy
	}{
		"a lost consumer": {
			set: func(f *chanqfindings.Figures) {
				f.Leased = []chanqadmin.Entry{{Consumer: web6, LeasedBy: "web-6", HeldSince: now.Add(-2 * time.Minute), LeaseUntil: now.Add(time.Minute)}}
			},
			found: chanqfindings.ConsumerLost, text: "consumer web-6 is not heard, with 1 message in hand, the last taken 2 min ago", since: 2 * time.Minute,
			says: []string{"in 1 min at the latest", "Release in the web UI, or chanq release orders " + web6.String() + ", ends them now;"},
		},
		"two lost consumers": {
			set: func(f *chanqfindings.Figures) {
				held := func(id chanq.ID, name string, since time.Duration) chanqadmin.Entry {
					return chanqadmin.Entry{Consumer: id, LeasedBy: name, HeldSince: now.Add(-since), LeaseUntil: now.Add(since)}
				}
				f.Consumers = nil
				f.Leased = []chanqadmin.Entry{held(web8, "web-6", time.Hour), held(web7, "web-7", time.Minute), held(web7, "web-7", 2*time.Minute)}
			},
			found: chanqfindings.ConsumerLost, text: "2 consumers are not heard, with 3 messages in hand, for example web-6, with 1 message in hand, the last taken 1 h ago; no other runs", since: time.Hour,
			says: []string{"in 1 h at the latest", "chanq release orders " + web8.String() + ", ends them now for web-6;"},
		},
		"a lost consumer of an ordered queue": {
			kind: chanq.KindOrdered,
			set: func(f *chanqfindings.Figures) {
				f.Consumers = append(f.Consumers, chanqadmin.ConsumerInfo{ID: web6, Name: "web-6", Heard: now.Add(-30 * time.Second), Until: now.Add(time.Minute)})
				f.Leased = []chanqadmin.Entry{{Consumer: web6, LeasedBy: "web-6"}}
			},
			found: chanqfindings.ConsumerLost, text: "consumer web-6 is not heard, last heard 30 s ago, with 1 message in hand", since: 30 * time.Second,
		},
		"a lost consumer without messages": {
			kind: chanq.KindOrdered,
			set: func(f *chanqfindings.Figures) {
				f.Consumers = []chanqadmin.ConsumerInfo{{ID: web6, Name: "web-6", Heard: now.Add(-30 * time.Second)}}
			},
			found: chanqfindings.ConsumerLost, text: "consumer web-6 is not heard, last heard 30 s ago, and has slots; no other runs", since: 30 * time.Second,
		},
		"two that hang": {
			set: func(f *chanqfindings.Figures) {
				f.Consumers = append(f.Consumers, chanqadmin.ConsumerInfo{ID: web8, Name: "web-8", Heard: now})
				f.Leased = []chanqadmin.Entry{{Consumer: web7, LeasedBy: "web-7", Type: "resize", HeldSince: now.Add(-5 * time.Minute)}, {Consumer: web8, LeasedBy: "web-8", Type: "crop", HeldSince: now.Add(-9 * time.Minute)}}
			},
			found: chanqfindings.Stuck, text: "all 2 messages in hand have been leased for 9 min, of type crop, by web-8 and 1 more", since: 9 * time.Minute,
			says: []string{"Messages in the web UI, or chanq peek --state leased orders"},
		},
		"one that hangs in an ordered queue": {
			kind: chanq.KindOrdered,
			set: func(f *chanqfindings.Figures) {
				*f = oneAMinute(chanq.KindOrdered, 5*time.Minute)
				f.Leased[0].LeasedBy, f.Leased[0].Type = "web-6", "resize"
			},
			found: chanqfindings.Stuck, text: "1 message in hand, and none was settled for 5 min 50 s, of type resize, by web-6", since: 5*time.Minute + 50*time.Second,
		},
		"a message that fails again and again": {
			set: func(f *chanqfindings.Figures) {
				f.Retried = []chanqadmin.Entry{{State: chanqadmin.StateScheduled, Attempts: 7, EnqueuedAt: now.Add(-time.Hour)}, {State: chanqadmin.StateScheduled, Attempts: 8, EnqueuedAt: now.Add(-3 * time.Minute), Type: "charge", LastError: "status 503"}}
				f.Leased = []chanqadmin.Entry{{State: chanqadmin.StateLeased, Consumer: web7, Attempts: 8, HeldSince: now}}
			},
			found: chanqfindings.Failing, text: "1 message has failed 8 times in 3 min, of type charge: status 503", since: 3 * time.Minute,
			says: []string{"Failures in the web UI, or chanq peek --state scheduled orders"},
		},
		"two messages that fail again and again": {
			set: func(f *chanqfindings.Figures) {
				f.Retried = []chanqadmin.Entry{{State: chanqadmin.StateScheduled, Attempts: 8, EnqueuedAt: now.Add(-time.Hour)}}
				f.Leased = []chanqadmin.Entry{{State: chanqadmin.StateLeased, Consumer: web7, Attempts: 10, HeldSince: now, EnqueuedAt: now.Add(-4 * time.Minute), LastError: "status 503"}}
			},
			found: chanqfindings.Failing, text: "2 messages have failed up to 9 times in 4 min: status 503", since: 4 * time.Minute,
		},
		"attempts that fail": {
			set: func(f *chanqfindings.Figures) {
				f.Recent[len(f.Recent)-1].Nacked = 30
				f.Retried = []chanqadmin.Entry{{Type: "refund", LastError: "status 404"}, {Type: "charge", LastError: "status 503"}, {Type: "charge", LastError: "status 503"}}
			},
			found: chanqfindings.Failing, text: "all of the last 30 attempts failed, of type charge: status 503", since: chanqadmin.StepFine,
		},
		"dead ones": {
			set: func(f *chanqfindings.Figures) {
				f.Stats.Dead = 2
				f.Dead = []chanqadmin.Entry{{Type: "invoice", EndedAt: now.Add(-time.Minute), LastError: "unknown currency"}}
			},
			found: chanqfindings.Dead, text: "2 messages are dead, the last for 1 min, of type invoice: unknown currency", since: time.Minute,
			says: []string{"Redrive there, or chanq redrive orders", "Purge, or chanq purge --state dead orders"},
		},
		"a key that waits": {
			kind: chanq.KindOrdered,
			set: func(f *chanqfindings.Figures) {
				f.Spec.DeadKey, f.Stats.Dead = chanq.DeadKeyHolds, 1
				f.Dead = []chanqadmin.Entry{{Key: "7", EndedAt: now.Add(-time.Minute)}}
				f.Behind = []chanqadmin.Entry{{Key: "7"}, {Key: "8"}}
			},
			found: chanqfindings.BlockedKey, text: "1 ready message of 1 key waits for dead messages of the same key, for 1 min", since: time.Minute,
			says: []string{"Slots in the web UI names the keys", "chanq redrive orders"},
		},
		"a pause": {
			set: func(f *chanqfindings.Figures) {
				f.Stats.Paused, f.Pause = true, chanqadmin.Pause{Since: now.Add(-time.Hour), By: "ada", Reason: "deploying"}
			},
			found: chanqfindings.Paused, text: "paused for 1 h by ada: deploying", since: time.Hour,
			says: []string{"Resume in the web UI, or chanq resume orders"},
		},
		"no consumer": {
			set: func(f *chanqfindings.Figures) {
				f.Consumers, f.Stats.Ready, f.Stats.OldestReady = nil, 12, time.Hour
			},
			found: chanqfindings.NoConsumer, text: "no consumer runs; 12 messages wait, the oldest for 1 h", since: time.Hour,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := calm(max(c.kind, chanq.KindPlain))
			c.set(&f)
			found := chanqfindings.Of(f, chanqfindings.Limits{}, now)
			require.NotEmpty(t, found)
			require.Equal(t, c.found, found[0].Kind)
			require.Equal(t, c.text, found[0].Text)
			require.Equal(t, now.Add(-c.since), found[0].Since)
			for _, says := range c.says {
				require.Contains(t, found[0].Remedy, says)
			}
		})
	}
}
