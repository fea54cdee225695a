package record

import "fmt"

// Verdict is the result of the checker.
type Verdict struct {
	Messages, Stored, Delivered int // messages
	Deliveries                  int // leases that a process reported
	Unsure                      int // delivered, though the sender never got a confirmation
	Duplicates                  Duplicates
	Acked, DeadLettered         int // confirmed ends
	// Unseen is how many claims of a message no process reported: those lost with their holder, or with the answer of
	// the server.
	Unseen int
	// Stale is how many leases had expired before a process received them from its buffer: it got that outcome, and
	// they do not count as deliveries.
	Stale       int
	MostAttempt int
	// LostLocked are lost leases whose row another transaction had locked, and LostSlow those whose claim's answer a
	// frozen connection delayed; counted by a Strict history.
	LostLocked, LostSlow int
	// Faults are broken guarantees, by message.
	Faults []string
}

// Duplicates counts deliveries of a message after its first, by the reason of each.
type Duplicates struct {
	Asked    int // by a nack or a release
	Killed   int // the holder was killed before it knew the outcome of its settle
	Informed int // the holder got the outcome that its lease had ended, or that the outcome is unknown
	Outage   int // an outage kept the holder from knowing, until it was killed
	Late     int // the holder was slower than its lease, and killed before it knew
	Again    int // an INSERT was repeated after the message had been consumed
}

// Total returns the number of all.
func (d Duplicates) Total() int {
	return d.Asked + d.Killed + d.Informed + d.Outage + d.Late + d.Again
}

func (v Verdict) String() string {
	d := v.Duplicates
	return fmt.Sprintf("%d messages intended, %d stored; %d delivered in %d deliveries, %d of them unconfirmed to their senders; "+
		"%d duplicates: %d asked for, %d of killed holders, %d of holders informed of the loss, %d of holders cut off by an outage, %d of late holders, %d stored again; "+
		"%d claims unseen, %d stale, attempts up to %d; %d broken promises",
		v.Messages, v.Stored, v.Delivered, v.Deliveries, v.Unsure, d.Total(), d.Asked, d.Killed, d.Informed, d.Outage, d.Late, d.Again,
		v.Unseen, v.Stale, v.MostAttempt, len(v.Faults))
}
