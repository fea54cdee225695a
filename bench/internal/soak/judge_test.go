package soak

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
)

// told makes a ledger of one message of what the processes told, in words such
// as "0d1a": process 0, delivered, attempt 1, to be acked. The time of each word
// is its place, from 1.
func told(words string) *ledger {
	l, id := newLedger(), chanq.NewID()
	for i, w := range strings.Fields(words) {
		e := event{kind: eventKind(w[1]), id: id, at: int64(i + 1), latency: -1}
		if len(w) > 2 {
			e.attempt = int(w[2] - '0')
		}
		if len(w) > 3 {
			e.intent = intent(w[3])
		}
		l.add(int(w[0]-'0'), e)
	}
	return l
}

func TestTheJudgeExplainsWhatIsPromised(t *testing.T) {
	for name, c := range map[string]struct {
		words  string
		killed []int64
		want   verdict
	}{
		"sent, delivered, acked":              {"0s 0a 1d1a 1c1", nil, verdict{messages: 1, stored: 1, first: 1, acked: 1}},
		"never stored":                        {"0s 0f", nil, verdict{messages: 1}},
		"the sender was killed":               {"0s 1d1a 1c1", []int64{9, 0}, verdict{messages: 1, first: 1, acked: 1}},
		"the receiver is read before":         {"1d1a 0s 0a 1c1", nil, verdict{messages: 1, stored: 1, first: 1, acked: 1}},
		"nacked, then acked":                  {"0s 0a 1d1n 1c1 0d2a 0c2", nil, verdict{messages: 1, stored: 1, first: 1, asked: 1, acked: 1}},
		"released, then acked":                {"0s 0a 1d1r 1c1 0d1a 0c1", nil, verdict{messages: 1, stored: 1, first: 1, asked: 1, acked: 1}},
		"the holder was killed":               {"0s 0a 1d1a 0d2b 0c2", []int64{0, 4}, verdict{messages: 1, stored: 1, first: 1, killed: 1, buried: 1}},
		"the settle failed":                   {"0s 0a 1d1a 1x1 0d2a 0c2", nil, verdict{messages: 1, stored: 1, first: 1, failed: 1, acked: 1}},
		"killed after an ack that it not saw": {"0s 0a 1d1a", []int64{0, 9}, verdict{messages: 1, stored: 1, first: 1}},
		"the INSERT was repeated":             {"0s 1d1a 1c1 0a 1d1a 1c1", nil, verdict{messages: 1, stored: 1, first: 1, repeated: 1, acked: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.killed == nil {
				c.killed = []int64{0, 0}
			}
			require.Equal(t, c.want, told(c.words).judge(c.killed))
		})
	}
}

func TestTheJudgeFindsWhatIsBroken(t *testing.T) {
	for name, c := range map[string]struct {
		words, want string
		killed      []int64
	}{
		"lost":                         {"0s 0a", "never delivered", nil},
		"lost after a nack":            {"0s 0a 1d1n 1c1", "never delivered again", nil},
		"delivered after its ack":      {"0s 0a 1d1a 1c1 0d2a 0c2", "after its end by process 1", nil},
		"delivered, its ack confirmed": {"0s 0a 1d1a 0d2a 1c1 0c2", "after its end by process 1", nil},
		"delivered after its burial":   {"0s 0a 1d1b 1c1 0d2a 0c2", "after its end by process 1", nil},
		"two hold it":                  {"0s 0a 1d1a 0d2a 0c2", "while process 1 held it", nil},
		"two hold it, one killed late": {"0s 0a 1d1a 0d2a 0c2", "while process 1 held it", []int64{0, 9}},
		"attempt not counted":          {"0s 0a 1d1n 1c1 0d1a 0c1", "attempt 1 follows attempt 1", nil},
		"outcome never told":           {"0s 0a 1d1a", "never learned", nil},
		"phantom":                      {"1d1a 1c1", "never sent", nil},
		"settled by another":           {"0s 0a 1d1a 0c1 1c1", "settled what it was not given", nil},
	} {
		t.Run(name, func(t *testing.T) {
			if c.killed == nil {
				c.killed = []int64{0, 0}
			}
			v := told(c.words).judge(c.killed)
			require.Len(t, v.broken, 1)
			require.Contains(t, v.broken[0], c.want)
		})
	}
}

// TestTheJudgeKnowsWhichLeasesMayBeLost: process 1 lost its lease at the 100th
// second, and told so.
func TestTheJudgeKnowsWhichLeasesMayBeLost(t *testing.T) {
	second := func(n int64) int64 { return n * int64(time.Second) }
	seconds := func(from, to int64) span { return span{second(from), second(to)} }
	for name, c := range map[string]struct {
		lock, otherLock, freeze, otherFreeze span
		claimTook                            int64 // up to the 98th second; 0: it was not late
		want                                 verdict
	}{
		"its row was locked":                        {lock: seconds(92, 99), want: verdict{lostLocked: 1}},
		"its row is locked still":                   {lock: seconds(99, 109), want: verdict{lostLocked: 1}},
		"its row was locked long before":            {lock: seconds(80, 90)},
		"its row was locked afterwards":             {lock: seconds(101, 109)},
		"another row was locked":                    {otherLock: seconds(92, 109)},
		"it came late over a frozen connection":     {freeze: seconds(94, 98), claimTook: 4, want: verdict{lostLate: 1}},
		"it came late over none":                    {claimTook: 4},
		"it came late, and another's was frozen":    {otherFreeze: seconds(94, 98), claimTook: 4},
		"it came late, after the freeze":            {freeze: seconds(80, 93), claimTook: 4},
		"a connection was frozen with other things": {freeze: seconds(92, 99)},
		"nothing happened":                          {},
	} {
		t.Run(name, func(t *testing.T) {
			l, id, killed := newLedger(), chanq.NewID(), []int64{0, 0}
			l.locks[id], l.locks[chanq.NewID()] = []span{c.lock}, []span{c.otherLock}
			l.freezes[1], l.freezes[0] = []span{c.freeze}, []span{c.otherFreeze}
			if c.claimTook > 0 {
				l.add(1, event{kind: late, at: second(98), took: second(c.claimTook)})
			}
			for i, e := range []event{
				{kind: sending}, {kind: stored}, {kind: delivered, attempt: 1, intent: ack}, {kind: lost, attempt: 1}, {kind: refused, attempt: 1},
				{kind: delivered, attempt: 2, intent: ack}, {kind: confirmed, attempt: 2},
			} {
				e.id, e.latency, e.at = id, -1, second(97+int64(i))
				l.add(1, e)
			}
			v := l.judge(killed)
			if c.want.lostLocked+c.want.lostLate == 0 {
				require.Len(t, v.broken, 1)
				require.Contains(t, v.broken[0], "lost the lease of attempt 1")
				return
			}
			require.Empty(t, v.broken)
			require.Equal(t, c.want, verdict{lostLocked: v.lostLocked, lostLate: v.lostLate})
		})
	}
}

func TestEventsAreReadAsTheyWereWritten(t *testing.T) {
	id := chanq.NewID()
	for _, e := range []event{
		{kind: sending, id: id, at: 1, latency: -1}, {kind: stored, id: id, at: 2, latency: -1}, {kind: unsent, id: id, at: 3, latency: -1},
		{kind: delivered, id: id, at: 4, attempt: 7, intent: release, latency: 12},
		{kind: delivered, id: id, at: 4, attempt: 7, intent: ack, latency: -1},
		{kind: confirmed, id: id, at: 5, attempt: 2, latency: -1}, {kind: refused, id: id, at: 6, attempt: 3, latency: -1},
		{kind: lost, id: id, at: 6, attempt: 3, latency: -1}, {kind: late, at: 6, took: 1 << 40, latency: -1},
		{kind: weighed, at: 7, latency: -1, sample: usage{heap: 1 << 40, goroutines: 3, faults: 9}}, {kind: loaded, at: 8, latency: -1},
	} {
		line := string(e.append(nil))
		got, err := parseEvent(strings.TrimSuffix(line, "\n"))
		require.NoError(t, err, line)
		require.Equal(t, e, got)
	}
	for _, line := range []string{"", "s", "s 1", "z 1 2 3", "d 1 x 1 a 5", "m 1 2 3 x", "dd 1 2 3 4 5"} {
		_, err := parseEvent(line)
		require.Error(t, err, line)
	}
}
