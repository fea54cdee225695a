package kills

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
)

// The events of a small history, at seconds after its beginning. Leases last for
// ten seconds.
var (
	noon  = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	id    = chanq.ID{1}
	maker = Life{"producer-1", 1}
	one   = Life{"consumer-1", 1}
	two   = Life{"consumer-2", 1}
	three = Life{"consumer-3", 1}
)

func at(seconds float64) time.Time { return noon.Add(time.Duration(seconds * float64(time.Second))) }

func happened(seconds float64, l Life, k Kind) Event {
	return Event{Kind: k, At: at(seconds), Body: "a", ID: id, Life: l}
}

func got(seconds float64, l Life, attempt int) Event {
	e := happened(seconds, l, Got)
	e.Attempt, e.Deadline = attempt, at(seconds+9.9)
	return e
}

func outcome(seconds float64, l Life, attempt int, k Kind) Event {
	e := happened(seconds, l, k)
	e.Attempt = attempt
	return e
}

func sent() []Event {
	return []Event{happened(0, maker, Intended), happened(0.1, maker, Stored)}
}

func TestJudge(t *testing.T) {
	nothing := Duplicates{}
	resent := happened(1, Life{"producer-1", 2}, Intended)
	tests := []struct {
		name       string
		events     []Event
		kills      []Kill
		outages    []Outage
		duplicates Duplicates
		fault      string // "" for none
	}{
		{
			name:   "a message that is sent, got and acked is right",
			events: append(sent(), got(1, one, 1), outcome(2, one, 1, Acked)),
		},
		{
			name:   "a message that was never stored need not be delivered",
			events: []Event{happened(0, maker, Intended)},
		},
		{
			name:   "lost",
			events: sent(),
			fault:  "LOST: stored, never delivered",
		},
		{
			name:   "from nowhere",
			events: []Event{got(1, one, 1), outcome(2, one, 1, Acked)},
			fault:  "nobody sent it",
		},
		{
			name:   "an ID changes",
			events: append(sent(), Event{Kind: Got, At: at(1), Body: "a", ID: chanq.ID{2}, Attempt: 1, Life: one}, outcome(2, one, 1, Acked)),
			fault:  "it has the IDs",
		},
		{
			name: "an ID has two bodies",
			events: append(sent(), got(1, one, 1), outcome(2, one, 1, Acked),
				Event{Kind: Intended, At: at(3), Body: "b", ID: id, Life: maker}),
			fault: "is that of a",
		},
		{
			name:       "a killed holder explains a duplicate",
			events:     append(sent(), got(1, one, 1), got(11, two, 2), outcome(12, two, 2, Acked)),
			kills:      []Kill{{one, at(2)}},
			duplicates: Duplicates{Killed: 1},
		},
		{
			name:   "a phantom duplicate",
			events: append(sent(), got(1, one, 1), got(11, two, 2), outcome(12, two, 2, Acked)),
			kills:  []Kill{{three, at(2)}},
			fault:  "consumer-1.1 was not killed and never knew",
		},
		{
			name:       "a holder that is told explains a duplicate",
			events:     append(sent(), got(1, one, 1), got(11, two, 2), outcome(12, two, 2, Acked), outcome(13, one, 1, Lost)),
			duplicates: Duplicates{Told: 1},
		},
		{
			name:       "a kill after the redelivery tells of a lease that ran out",
			events:     append(sent(), happened(0, one, Started), got(1, one, 1), got(11, two, 2), outcome(12, two, 2, Acked)),
			kills:      []Kill{{one, at(20)}, {three, at(2)}},
			duplicates: Duplicates{Late: 1},
		},
		{
			name:       "unless there was an outage",
			events:     append(sent(), got(1, one, 1), got(11, two, 2), outcome(12, two, 2, Acked)),
			kills:      []Kill{{one, at(20)}},
			outages:    []Outage{{at(2), at(3)}},
			duplicates: Duplicates{Outage: 1},
		},
		{
			name:   "delivered after the ack",
			events: append(sent(), got(1, one, 1), outcome(2, one, 1, Acked), got(11, two, 2), outcome(12, two, 2, Acked)),
			kills:  []Kill{{one, at(3)}},
			fault:  "delivered to consumer-2.1 after the ack of consumer-1.1 was confirmed",
		},
		{
			name:   "an ack is confirmed to one whose lease is another's",
			events: append(sent(), got(1, one, 1), got(11, two, 2), outcome(12, two, 2, Acked), outcome(13, one, 1, Acked)),
			kills:  []Kill{{three, at(2)}},
			fault:  "after the ack of consumer-1.1 was confirmed",
		},
		{
			name: "stored again by its sender, after the ack",
			events: append(sent()[:1], got(0.5, one, 1), outcome(0.6, one, 1, Acked),
				resent, happened(1.1, resent.Life, Stored), got(2, two, 1), outcome(3, two, 1, Acked)),
			kills:      []Kill{{maker, at(0.4)}},
			duplicates: Duplicates{Again: 1},
		},
		{
			name: "stored again by chanq, which an outage kept from knowing",
			events: []Event{happened(0, maker, Intended), got(1, one, 1), outcome(1.1, one, 1, Acked), happened(2, maker, Stored),
				got(3, two, 1), outcome(4, two, 1, Acked)},
			outages:    []Outage{{at(0.5), at(0.9)}},
			duplicates: Duplicates{Again: 1},
		},
		{
			name: "an outage after the send explains nothing",
			events: []Event{happened(0, maker, Intended), happened(0.4, maker, Stored), got(1, one, 1), outcome(1.1, one, 1, Acked),
				got(3, two, 1), outcome(4, two, 1, Acked)},
			outages: []Outage{{at(0.5), at(0.9)}},
			fault:   "after the ack of consumer-1.1 was confirmed",
		},
		{
			name: "stored again, but only once",
			events: append(sent()[:1], got(0.5, one, 1), outcome(0.6, one, 1, Acked),
				resent, happened(1.1, resent.Life, Stored), got(2, two, 1), outcome(3, two, 1, Acked), got(4, three, 1), outcome(5, three, 1, Acked)),
			kills:      []Kill{{maker, at(0.4)}},
			duplicates: Duplicates{Again: 1},
			fault:      "delivered to consumer-3.1 after the ack",
		},
		{
			name:       "before the lease of a killed holder ends",
			events:     append(sent(), got(1, one, 1), got(10.5, two, 2), outcome(12, two, 2, Acked)),
			kills:      []Kill{{one, at(2)}},
			duplicates: Duplicates{Killed: 1},
			fault:      "before the lease of consumer-1.1 could end",
		},
		{
			name:   "a loss that gave it to nobody",
			events: append(sent(), got(1, one, 1), outcome(2, one, 1, Lost)),
			fault:  "LOST: consumer-1.1 was told",
		},
		{
			name:   "a settle whose outcome is unknown may have counted",
			events: append(sent(), got(1, one, 1), outcome(2, one, 1, Unknown)),
		},
		{
			name: "a lease that had run out before it was got",
			events: append(sent(), got(11, two, 2), outcome(12, two, 2, Acked),
				Event{Kind: Got, At: at(13), Body: "a", ID: id, Attempt: 1, Deadline: at(9.9), Life: one}, outcome(13.1, one, 1, Lost)),
		},
		{
			name: "a lease that had run out, and its ack may have counted all the same",
			events: append(sent(),
				Event{Kind: Got, At: at(13), Body: "a", ID: id, Attempt: 1, Deadline: at(9.9), Life: one}, outcome(13.1, one, 1, Unknown)),
		},
		{
			name: "a lease that had run out, and nobody got the message after it",
			events: append(sent(),
				Event{Kind: Got, At: at(13), Body: "a", ID: id, Attempt: 1, Deadline: at(9.9), Life: one}, outcome(13.1, one, 1, Lost)),
			fault: "LOST: consumer-1.1 was told",
		},
		{
			name: "unless its ack counted",
			events: append(sent(), got(11, two, 2), outcome(12, two, 2, Acked),
				Event{Kind: Got, At: at(13), Body: "a", ID: id, Attempt: 1, Deadline: at(9.9), Life: one}, outcome(13.1, one, 1, Acked)),
			kills: []Kill{{Life{"consumer-1", 0}, at(2)}},
			fault: "delivered to consumer-1.1 after the ack of consumer-2.1",
		},
		{
			name:   "an outcome without a lease",
			events: append(sent(), got(1, one, 1), outcome(2, one, 1, Acked), outcome(2, two, 1, Acked)),
			fault:  "of a lease that it never got",
		},
		{
			name:       "attempts do not rise",
			events:     append(sent(), got(1, one, 1), got(11, two, 1), outcome(12, two, 1, Acked)),
			kills:      []Kill{{one, at(2)}},
			duplicates: Duplicates{Killed: 1},
			fault:      "attempt 1 follows attempt 1",
		},
		{
			name:   "a claim nobody saw takes a kill",
			events: append(sent(), got(11, two, 2), outcome(12, two, 2, Acked)),
			kills:  []Kill{{one, at(2)}, {maker, at(2)}, {two, at(30)}},
			fault:  "attempt 2, after 0 kills", // consumer-1 never got anything: not known as a consumer
		},
		{
			name:   "and then it is right",
			events: append(sent(), got(11, two, 2), outcome(12, two, 2, Acked)),
			kills:  []Kill{{Life{"consumer-2", 0}, at(2)}},
		},
		{
			name:   "an attempt for nothing",
			events: append(sent(), got(11, one, 2), outcome(12, one, 2, Acked)),
			fault:  "attempt 2, after 0 kills",
		},
		{
			name:   "more attempts than leases can have ended",
			events: append(sent(), got(11, one, 3), outcome(12, one, 3, Acked)),
			kills:  []Kill{{Life{"consumer-1", 0}, at(2)}, {Life{"consumer-1", -1}, at(1)}},
			fault:  "2 leases take 20s",
		},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			v := Judge(History{Events: c.events, Kills: c.kills, Outages: c.outages, LeaseFor: 10 * time.Second})
			if c.fault == "" {
				require.Empty(t, v.Faults)
				require.Equal(t, c.duplicates, v.Duplicates)
				return
			}
			require.NotEmpty(t, v.Faults)
			require.Contains(t, v.Faults[0], c.fault)
			if c.duplicates != nothing {
				require.Equal(t, c.duplicates, v.Duplicates)
			}
		})
	}
}

func TestJudgeCounts(t *testing.T) {
	events := append(sent(), got(21, two, 3), outcome(22, two, 3, Acked))
	events = append(events,
		Event{Kind: Intended, At: at(0), Body: "b", Life: maker},
		Event{Kind: Got, At: at(1), Body: "b", ID: chanq.ID{2}, Attempt: 1, Life: one}, Event{Kind: Acked, At: at(2), Body: "b", Attempt: 1, Life: one},
		Event{Kind: Intended, At: at(0), Body: "c", Life: maker},
	)
	v := Judge(History{Events: events, Kills: []Kill{{one, at(3)}, {Life{"consumer-2", 0}, at(4)}}, LeaseFor: 10 * time.Second})
	require.Empty(t, v.Faults)
	require.Equal(t, Verdict{Intended: 3, Stored: 1, Delivered: 2, Deliveries: 2, Unsure: 1, Unseen: 2, MostAttempt: 3}, v)
}

func TestALogSurvivesACutLine(t *testing.T) {
	dir := t.TempDir()
	log, err := CreateLog(dir, one)
	require.NoError(t, err)
	require.NoError(t, log.Write(Event{Kind: Intended, Body: "a", ID: id}))
	require.NoError(t, log.Write(Event{Kind: Intended, Body: "b"}))
	require.NoError(t, log.Write(Event{Kind: Intended, Body: "c", ID: chanq.ID{3}}))
	require.NoError(t, log.Write(Event{Kind: Stored, Body: "a", ID: id}))
	_, err = log.file.WriteString(`{"kind":"stored","body":"c"`)
	require.NoError(t, err)
	require.NoError(t, log.Close())
	_, err = CreateLog(dir, one)
	require.Error(t, err, "a life has one log")
	events, err := ReadLog(dir, one)
	require.NoError(t, err)
	require.Len(t, events, 4)
	require.Equal(t, one, events[0].Life)
	unfinished := Unfinished(events)
	require.Len(t, unfinished, 1)
	require.Equal(t, "c", unfinished[0].Body)
	none, err := ReadLog(dir, two)
	require.NoError(t, err)
	require.Empty(t, none)
}
