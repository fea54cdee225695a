package record

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
)

const second = int64(time.Second)

// historyOf makes a history from the events of one message, in words such as "1 0:intended 2.5 1:got2nack": at the
// 1st second process 0 intended to send it, at 2.5 process 1 got it with attempt 2, to nack it. Without a number, a
// second has passed since the previous word. Leases last ten seconds. "x7" means that process 7 was killed, "1:took1"
// that process 1 got a lease, and "1:settling1ack" that it then began to settle it.
func historyOf(words string) *History {
	h := NewHistory(10 * time.Second)
	at := int64(-1)
	for _, w := range strings.Fields(words) {
		var seconds float64
		if _, err := fmt.Sscanf(w+"!", "%g!", &seconds); err == nil && !strings.ContainsAny(w, ":x") {
			at = int64(seconds*float64(second)) - second
			continue
		}
		at += second
		var process, attempt int
		if n, _ := fmt.Sscanf(w, "x%d", &process); n == 1 {
			h.killed[process] = at + 1
			continue
		}
		number, what, _ := strings.Cut(w, ":")
		fmt.Sscan(number, &process)
		kind := strings.TrimRight(what, "abcdefghijklmnopqrstuvwxyz-")
		kind = strings.TrimRight(kind, "0123456789")
		if kind == "" { // no attempt
			kind = what
		}
		rest := strings.TrimPrefix(what, kind)
		fmt.Sscanf(rest, "%d", &attempt)
		e := Event{Kind: Kind(kind), At: at + 1, Name: "a", ID: chanq.ID{1}, Attempt: attempt}
		if kind == "got" || kind == "took" {
			e.Kind, e.Deadline = Got, at+10*second-second/10
		}
		if e.How = How(strings.TrimLeft(rest, "0123456789")); e.Kind == Settling {
			e.Deadline = at + 5*second
		}
		h.Add(process, e)
		if kind == "got" {
			e.Kind, e.How = Settling, cmp.Or(e.How, Ack)
			h.Add(process, e)
		}
	}
	return h
}

const sent = "0 0:intended 0.1 0:stored 1 "

func TestTheCheckerExplainsTheGuarantees(t *testing.T) {
	for name, c := range map[string]struct {
		words    string
		outage   Span
		broken   bool
		want     Duplicates
		received int // messages
	}{
		"sent, delivered, acked":                        {words: sent + "1:got1 1:confirmed1", received: 1},
		"never stored":                                  {words: "0:intended"},
		"the sender was killed":                         {words: "0:intended 1:got1 1:confirmed1 x0", received: 1},
		"the event of the receiver comes first":         {words: "2 1:got1 1:confirmed1 0 0:intended 0:stored", received: 1},
		"nacked, then acked":                            {words: sent + "1:got1nack 1:confirmed1 2:got2 2:confirmed2", want: Duplicates{Asked: 1}, received: 1},
		"released, then acked":                          {words: sent + "1:got1release 1:confirmed1 2:got1 2:confirmed1", want: Duplicates{Asked: 1}, received: 1},
		"released, and got by the same process again":   {words: sent + "1:got1release 1:confirmed1 1:got1 1:confirmed1", want: Duplicates{Asked: 1}, received: 1},
		"lapses count no more after a nack":             {words: sent + "x8 x9 31 1:got3nack 1:confirmed3 2:got2 2:confirmed2", want: Duplicates{Asked: 1}, received: 1},
		"killed after a nack that it did not see":       {words: sent + "1:got1nack 2:got2 2:confirmed2 x1", want: Duplicates{Asked: 1}, received: 1},
		"killed after an ack that it did not see":       {words: sent + "1:got1 x1", received: 1},
		"the holder was killed":                         {words: sent + "1:got1 x1 11 2:got2dead-letter 2:confirmed2", want: Duplicates{Killed: 1}, received: 1},
		"the holder was informed":                       {words: sent + "1:got1 11 2:got2 2:confirmed2 1:lost1", want: Duplicates{Informed: 1}, received: 1},
		"the holder knows nothing":                      {words: sent + "1:got1 1:unknown1", received: 1},
		"slower than its lease, and killed":             {words: "0 1:started " + sent + "1:got1 x3 11 2:got2 2:confirmed2 20 x1", want: Duplicates{Late: 1}, received: 1},
		"unless there was an outage":                    {words: sent + "1:got1 11 2:got2 2:confirmed2 20 x1", outage: Span{2 * second, 3 * second}, want: Duplicates{Outage: 1}, received: 1},
		"stored again by its sender":                    {words: "0 0:intended 0.4 x0 0.5 1:got1 0.6 1:confirmed1 1 3:intended 1.1 3:stored 2 2:got1 2:confirmed1", want: Duplicates{Again: 1}, received: 1},
		"stored again, and the ack was not seen":        {words: "0 0:intended 0.4 x0 0.5 1:got1 0.6 x1 1 3:intended 1.1 3:stored 11 2:got1 2:confirmed1", want: Duplicates{Again: 1}, received: 1},
		"stored again by chanq, after an outage":        {words: "0 0:intended 1 1:got1 1:confirmed1 0:stored 2:got1 2:confirmed1", outage: Span{second / 2, second - 1}, want: Duplicates{Again: 1}, received: 1},
		"stored again by chanq, as connections break":   {words: "0 0:intended 1 1:got1 1:confirmed1 0:stored 2:got1 2:confirmed1", broken: true, want: Duplicates{Again: 1}, received: 1},
		"the same, known before the ack was confirmed":  {words: "0 0:intended 1 1:got1 2 0:stored 4 1:confirmed1 7 2:got1 2:confirmed1", broken: true, want: Duplicates{Again: 1}, received: 1},
		"the same, and its ack has an unknown outcome":  {words: "0 0:intended 1 1:got1 2 0:stored 4 1:unknown1 7 2:got1 2:confirmed1", broken: true, want: Duplicates{Again: 1}, received: 1},
		"stored again so, and its first holder died":    {words: "0 0:intended 1 1:got1 1:confirmed1 0:stored 1.5 x7 12 2:got2 2:confirmed2", broken: true, want: Duplicates{Again: 1}, received: 1},
		"by its sender and by chanq, three times":       {words: "0 0:intended 0.4 x0 0.5 3:intended 0.6 1:got1 0.7 1:confirmed1 0.8 3:stored 1 2:got1 1.1 2:confirmed1 4 1:got1 1:confirmed1", broken: true, want: Duplicates{Again: 2}, received: 1},
		"run out before it was got":                     {words: sent + "11 2:got2 2:confirmed2 13 1:stale1 1:lost1", received: 1},
		"run out, and its ack may have counted":         {words: sent + "13 1:stale1 1:unknown1", received: 1},
		"an unreported claim requires a kill":           {words: sent + "x7 11 2:got2 2:confirmed2", received: 1},
		"or a holder that lived for as long as a lease": {words: "0 7:started " + sent + "11 2:got2 2:confirmed2 30 x7", received: 1},
		"a nack ends a lease at once":                   {words: sent + "1:got1nack 1:confirmed1 2:got2nack 2:confirmed2 1:got3 1:confirmed3", want: Duplicates{Asked: 2}, received: 1},
	} {
		t.Run(name, func(t *testing.T) {
			h := stale(c.words)
			h.Broken = c.broken
			if c.outage != (Span{}) {
				h.Outages = []Span{c.outage}
			}
			v := h.Judge()
			require.Empty(t, v.Faults)
			require.Equal(t, c.want, v.Duplicates)
			require.Equal(t, c.received, v.Delivered)
		})
	}
}

// stale is historyOf with the word stale for a lease whose deadline was the 9.9th second.
func stale(words string) *History {
	h := historyOf(strings.ReplaceAll(words, ":stale", ":got"))
	if strings.Contains(words, ":stale") {
		for _, m := range h.Messages {
			d := &m.Deliveries[len(m.Deliveries)-1]
			d.Deadline = 99 * second / 10
		}
	}
	return h
}

func TestTheCheckerFindsViolations(t *testing.T) {
	for name, c := range map[string]struct {
		words, want string
		outage      Span
		strict      bool
		broken      bool
	}{
		"lost":                                       {words: sent, want: "LOST: stored, never delivered"},
		"lost after a nack":                          {words: sent + "1:got1nack 1:confirmed1", want: "never delivered again"},
		"lost after a nack of unknown outcome":       {words: sent + "1:got1nack 1:unknown1", want: "LOST: not ended by process 1"},
		"lost by a holder that never settled it":     {words: sent + "1:took1 x1", want: "LOST: not ended by process 1"},
		"held still, not settled, killed late":       {words: sent + "1:took1 11 2:got2 2:confirmed2 20 x1", strict: true, want: "while process 1 held it"},
		"rolled back, and delivered":                 {words: "0:intended 0:dropped 1:got1 1:confirmed1", want: "it was refused or rolled back"},
		"lost by a loss without a redelivery":        {words: sent + "1:got1 1:lost1", want: "LOST: process 1 got"},
		"the same, of a lease that had run out":      {words: sent + "13 1:stale1 1:lost1", want: "LOST: process 1 got"},
		"from nowhere":                               {words: "1:got1 1:confirmed1", want: "it was never sent"},
		"delivered after its ack":                    {words: sent + "1:got1 1:confirmed1 11 2:got2 2:confirmed2 x1", want: "after its end by process 1"},
		"delivered after its dead-lettering":         {words: sent + "1:got1dead-letter 1:confirmed1 11 2:got2 2:confirmed2", want: "after its end by process 1"},
		"two acks are confirmed":                     {words: sent + "x3 1:got1 11 2:got2 2:confirmed2 1:confirmed1", want: "after its end by process 1"},
		"stale, and its ack is confirmed":            {words: sent + "x3 11 2:got2 2:confirmed2 13 1:stale1 1:confirmed1", want: "after its end by process 2"},
		"an outage after the send":                   {words: "0 0:intended 0.4 0:stored 1 1:got1 1:confirmed1 2:got1 2:confirmed1", outage: Span{second / 2, second - 1}, want: "after its end by process 1"},
		"stored again, and no connection had broken": {words: "0 0:intended 1 1:got1 1:confirmed1 0:stored 2:got1 2:confirmed1", want: "after its end by process 1"},
		"stored again, known when it was acked":      {words: "0 0:intended 1 1:took1 2 0:stored 3 1:settling1ack 4 1:confirmed1 7 2:got1 2:confirmed1", broken: true, want: "after its end by process 1"},
		"stored again, held and run out, too soon":   {words: "0 0:intended 1 1:got1 1:confirmed1 0:stored 1.5 x7 9 2:got2 2:confirmed2", broken: true, want: "after its end by process 1"},
		"stored again, but only once":                {words: "0 0:intended 0.4 x0 0.5 1:got1 0.6 1:confirmed1 1 3:intended 1.1 3:stored 2 2:got1 2:confirmed1 4:got1 4:confirmed1", want: "delivered to process 4 after"},
		"a phantom":                                  {words: sent + "1:got1 x3 11 2:got2 2:confirmed2", want: "process 1 was not killed and never knew"},
		"an outcome is never told":                   {words: sent + "1:got1", want: "never knew"},
		"another event is reported":                  {words: sent + "1:got1 1:failed1", want: "neither an outcome"},
		"held still, killed late":                    {words: sent + "1:got1 11 2:got2 2:confirmed2 20 x1", strict: true, want: "while process 1 held it"},
		"before the lease of a killed holder ends":   {words: sent + "1:got1 2 x1 10.5 2:got2 2:confirmed2", want: "before the lease of process 1 could end"},
		"the same, while it handled it":              {words: sent + "1:took1 2 x1 2.5 2:got2 2:confirmed2", broken: true, want: "before the lease of process 1 could end"},
		"the same, killed later":                     {words: sent + "1:took1 2 2:got2 2:confirmed2 20 x1", want: "before the lease of process 1 could end"},
		"an outcome without a lease":                 {words: sent + "1:got1 1:confirmed1 2:confirmed1", want: "of a lease that it never got"},
		"attempts do not rise":                       {words: sent + "1:got1 2 x1 11 2:got1 2:confirmed1", want: "attempt 1 follows attempt 1"},
		"nor after a nack":                           {words: sent + "1:got1nack 1:confirmed1 2:got1 2:confirmed1", want: "attempt 1 follows attempt 1"},
		"an attempt of none":                         {words: sent + "1:got0 1:confirmed0", want: "attempt 0"},
		"an attempt for nothing":                     {words: sent + "11 1:got2 1:confirmed2", want: "attempt 2, after 0 kills"},
		"a kill long before the send":                {words: "0 x7 5 0:intended 0:stored 20 1:got2 1:confirmed2", want: "attempt 2, after 0 kills"},
		"more attempts than leases can end":          {words: sent + "x7 x8 11 1:got3 1:confirmed3", want: "2 leases take 20s"},
	} {
		t.Run(name, func(t *testing.T) {
			h := stale(c.words)
			h.Strict, h.Broken = c.strict, c.broken
			if c.outage != (Span{}) {
				h.Outages = []Span{c.outage}
			}
			v := h.Judge()
			require.NotEmpty(t, v.Faults)
			require.Contains(t, v.Faults[0], c.want)
		})
	}
}

func TestTheCheckerIdentifiesAMessageByItsID(t *testing.T) {
	h := historyOf(sent)
	h.Add(1, Event{Kind: Got, At: second, Name: "a", ID: chanq.ID{2}, Attempt: 1})
	h.Add(1, Event{Kind: Settling, At: second, Name: "a", Attempt: 1, How: Ack})
	h.Add(1, Event{Kind: Confirmed, At: second, Name: "a", Attempt: 1})
	require.Contains(t, h.Judge().Faults[0], "it has the IDs")

	h = historyOf(sent + "1:got1 1:confirmed1")
	h.Add(0, Event{Kind: Intended, At: second, Name: "b", ID: chanq.ID{1}})
	require.Contains(t, h.Judge().Faults[0], "is that of a")
}

func TestTheCheckerCounts(t *testing.T) {
	h := historyOf("0 0:intended 0.1 0:stored 3 x1 x7 21 2:got3 22 2:confirmed3")
	h.Add(0, Event{Kind: Intended, Name: "b"})
	h.Add(1, Event{Kind: Got, At: second, Name: "b", ID: chanq.ID{2}, Attempt: 1})
	h.Add(1, Event{Kind: Settling, At: second, Name: "b", Attempt: 1, How: DeadLetter})
	h.Add(1, Event{Kind: Confirmed, At: 2 * second, Name: "b", Attempt: 1})
	h.Add(0, Event{Kind: Intended, Name: "c"})
	v := h.Judge()
	require.Empty(t, v.Faults)
	require.Equal(t, Verdict{Messages: 3, Stored: 1, Delivered: 2, Deliveries: 2, Unsure: 1, Unseen: 2, MostAttempt: 3, Acked: 1, DeadLettered: 1}, v)
}

// Process 1 lost its lease at the 100th second, and reported that.
func TestTheCheckerKnowsWhichLeasesMayBeLost(t *testing.T) {
	seconds := func(from, to int64) Span { return Span{from * second, to * second} }
	for name, c := range map[string]struct {
		lock, otherLock, freeze, otherFreeze Span
		claimTook                            int64 // up to the 98th second; 0: it was not slow
		locked, slow                         int
	}{
		"its row was locked":                        {lock: seconds(92, 99), locked: 1},
		"its row is locked still":                   {lock: seconds(99, 109), locked: 1},
		"its row was locked long before":            {lock: seconds(70, 89)},
		"its row was locked afterwards":             {lock: seconds(101, 109)},
		"another row was locked":                    {otherLock: seconds(92, 109)},
		"it came late over a frozen connection":     {freeze: seconds(94, 98), claimTook: 4, slow: 1},
		"it came late over none":                    {claimTook: 4},
		"it came late, and another's was frozen":    {otherFreeze: seconds(94, 98), claimTook: 4},
		"it came late, after the freeze":            {freeze: seconds(80, 93), claimTook: 4},
		"a connection was frozen with other things": {freeze: seconds(92, 99)},
		"nothing happened":                          {},
	} {
		t.Run(name, func(t *testing.T) {
			h := historyOf("80 0:intended 0:stored 90 1:got1 100 1:ended1 1:lost1 2:got2 2:confirmed2")
			h.Strict = true
			h.Locks[chanq.ID{1}], h.Locks[chanq.ID{9}] = []Span{c.lock}, []Span{c.otherLock}
			h.Freezes[1], h.Freezes[0] = []Span{c.freeze}, []Span{c.otherFreeze}
			if c.claimTook > 0 {
				h.Add(1, Event{Kind: Slow, At: 98 * second, Took: time.Duration(c.claimTook * second)})
			}
			v := h.Judge()
			require.Equal(t, []int{c.locked, c.slow}, []int{v.LostLocked, v.LostSlow})
			if c.locked+c.slow > 0 {
				require.Empty(t, v.Faults)
				return
			}
			require.Len(t, v.Faults, 1)
			require.Contains(t, v.Faults[0], "lost the lease of attempt 1")
		})
	}
}

func TestASuccessorRepeatsSendsOfUnknownOutcome(t *testing.T) {
	h := NewHistory(time.Second)
	h.Add(1, Event{Kind: Intended, Name: "stored", ID: chanq.ID{1}})
	h.Add(1, Event{Kind: Intended, Name: "without an ID"})
	h.Add(1, Event{Kind: Intended, Name: "doubtful", ID: chanq.ID{3}})
	h.Add(2, Event{Kind: Intended, Name: "of another", ID: chanq.ID{4}})
	h.Add(1, Event{Kind: Stored, Name: "stored", ID: chanq.ID{1}})
	require.Equal(t, []Again{{"doubtful", chanq.ID{3}}}, h.Unfinished(1))
}

// TestAFrozenInsertThatWasRepeatedIsStoredAgain: the first INSERT arrives after the second's message was consumed.
func TestAFrozenInsertThatWasRepeatedIsStoredAgain(t *testing.T) {
	h := historyOf("0 0:intended 1 0:stored 1:got1 1:confirmed1 5 2:got1 2:confirmed1")
	require.NotEmpty(t, h.Judge().Faults)
	h.Freezes[0] = []Span{{second / 2, 4 * second}}
	require.Empty(t, h.Judge().Faults)
	h.Freezes[0] = []Span{{0, second / 2}}
	require.NotEmpty(t, h.Judge().Faults, "the freeze had ended before the send did")
}

// TestTheCheckerFindsWhatIsOutOfOrder has deliveries of messages of a key, in words such as "2 20-30 lost": message 2
// was handled from the 20th to the 30th millisecond, and its holder then lost its lease. Without an outcome it was
// acked. Two messages were sent.
func TestTheCheckerFindsWhatIsOutOfOrder(t *testing.T) {
	two := func(h *History) {
		for number := range 2 {
			for _, k := range []Kind{Intended, Stored} {
				h.Add(0, Event{Kind: k, At: int64(number + 1), Name: NameOf("a", number+1)})
			}
		}
	}
	// A process that was killed sent 1 and 2 together, 3 was rolled back, and 4 was sent later.
	four := func(h *History) {
		for number, at := range []int64{1, 1, 2, 3} {
			h.Add(0, Event{Kind: Intended, At: at, Name: NameOf("a", number+1)})
		}
		h.Add(0, Event{Kind: Dropped, At: 2, Name: "a/3"})
		h.Add(0, Event{Kind: Stored, At: 3, Name: "a/4"})
	}
	// 1 and 2 were sent together, and the sender heard only at the 100th millisecond that they were stored.
	late := func(h *History) {
		for number := range 2 {
			h.Add(0, Event{Kind: Intended, At: 1, Name: NameOf("a", number+1)})
			h.Add(0, Event{Kind: Stored, At: 100e6, Name: NameOf("a", number+1)})
		}
	}
	for _, c := range []struct {
		name, words string
		sent        func(*History)
		want        []string // beginnings of the faults
	}{
		{"in order", "2 20-30, 1 0-10", two, nil},
		{"again", "1 0-10 lost, 1 10-20, 2 20-30", two, nil},
		{"an ack of unknown outcome", "1 0-10 unknown, 2 20-30", two, nil},
		{"released, and skipped", "1 0-10 lost, 2 20-30", two, []string{"a/1: LOST"}},
		{"inverted", "2 0-10, 1 10-20", two, []string{"a/1: INVERSION"}},
		{"overlapping", "1 0-10, 2 9-20", two, []string{"a/2: OVERLAP"}},
		{"overlapping one of before", "1 0-30 unknown, 1 30-31, 2 29-40", two, []string{"a/1: INVERSION", "a/1: OVERLAP", "a/2: OVERLAP"}},
		{"never came", "2 9-20", two, []string{"a/1: LOST"}},
		{"nothing", "", two, []string{"a/1: LOST", "a/2: LOST"}},
		{"after its end", "1 0-10, 1 13-14, 2 20-30", two, []string{"a/1: delivered to process 1 after its end"}},
		{"never sent", "1 0-10, 2 20-30, 3 40-50", two, []string{"a/3: it was never sent"}},

		{"stored", "1 0-1, 2 2-3, 4 4-5", four, nil},
		{"not stored", "4 4-5", four, nil},
		{"stored late", "4 4-5, 1 6-7, 2 8-9", four, nil},
		{"inverted among themselves", "2 2-3, 1 4-5, 4 6-7", four, []string{"a/1: INVERSION"}},
		{"stored, and lost", "1 0-1 lost, 4 4-5", four, []string{"a/1: LOST"}},
		{"rolled back, and came", "3 0-1, 4 4-5", four, []string{"a/3: it was refused or rolled back"}},
		{"the one that is sure is lost", "", four, []string{"a/4: LOST"}},

		{"stored again together", "1 0-1, 2 2-3, 1 90-91, 2 92-93", late, nil},
		{"the first is stored again", "1 0-1, 2 2-3, 1 90-91", late, nil},
		{"inverted when they are stored again", "1 0-1, 2 2-3, 2 90-91, 1 92-93", late, []string{"a/1: INVERSION"}},
		{"inverted before they are stored again", "2 0-1, 1 2-3, 1 90-91, 2 92-93", late, []string{"a/1: INVERSION"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := NewHistory(10 * time.Second)
			h.Ordered, h.Broken = true, true
			c.sent(h)
			attempts := map[int]int{}
			for words := range strings.SplitSeq(c.words, ", ") {
				var number int
				var from, until int64
				outcome := Confirmed
				if n, _ := fmt.Sscanf(words, "%d %d-%d %s", &number, &from, &until, &outcome); n < 3 {
					continue
				}
				attempts[number]++
				e := Event{Kind: Got, At: from*1e6 + 10, Name: NameOf("a", number), Attempt: attempts[number], Deadline: until*1e6 + 10}
				h.Add(1, e)
				e.Kind, e.At, e.How = Settling, e.Deadline, Ack
				h.Add(1, e)
				e.Kind = outcome
				h.Add(1, e)
				if outcome == Confirmed {
					attempts[number] = 0 // of another row
				}
			}
			faults := h.Judge().Faults
			slices.Sort(faults)
			require.Len(t, faults, len(c.want), "%q", faults)
			for i, fault := range faults {
				require.True(t, strings.HasPrefix(fault, c.want[i]), fault)
			}
		})
	}
}
