package soak

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/chanq/chanq"
)

// event is what a worker tells, one a line. Times are Unix nanoseconds of the
// machine's clock, which all processes share.
type event struct {
	kind eventKind
	id   chanq.ID
	at   int64

	attempt int    // of deliveries and settles
	intent  intent // of a delivery: what the worker is going to do
	latency int64  // of a delivery: nanoseconds since the message was due; -1 unless it is the first
	took    int64  // of a claim: nanoseconds

	sample usage
}

// usage is what a worker weighs.
type usage struct {
	heap       uint64 // bytes, garbage included
	goroutines int
	faults     int64 // injected so far
}

type eventKind byte

const (
	sending   eventKind = 's' // Send is about to be called
	stored    eventKind = 'a' // Send returned nil
	unsent    eventKind = 'f' // Send returned an error: it may be stored
	delivered eventKind = 'd' // before anything is done with it
	confirmed eventKind = 'c' // Wait returned nil
	refused   eventKind = 'x' // Wait returned an error, or the lease was lost
	lost      eventKind = 'l' // a lease, also one that nobody had taken from the buffer
	late      eventKind = 'w' // a claim took long
	weighed   eventKind = 'm'
	loaded    eventKind = 'r' // the worker runs
)

// intent is how a worker is going to settle.
type intent byte

const (
	ack     intent = 'a'
	nack    intent = 'n'
	release intent = 'r'
	bury    intent = 'b'
)

func (e event) append(line []byte) []byte {
	line = append(line, byte(e.kind), ' ')
	line = strconv.AppendInt(line, e.at, 10)
	switch e.kind {
	case sending, stored, unsent, refused, confirmed, lost:
		line = append(append(line, ' '), e.id.String()...)
		line = strconv.AppendInt(append(line, ' '), int64(e.attempt), 10)
	case delivered:
		line = append(append(line, ' '), e.id.String()...)
		line = strconv.AppendInt(append(line, ' '), int64(e.attempt), 10)
		line = append(line, ' ', byte(e.intent), ' ')
		line = strconv.AppendInt(line, e.latency, 10)
	case late:
		line = strconv.AppendInt(append(line, ' '), e.took, 10)
	case weighed:
		line = fmt.Appendf(line, " %d %d %d", e.sample.heap, e.sample.goroutines, e.sample.faults)
	}
	return append(line, '\n')
}

func parseEvent(line string) (e event, err error) {
	words := strings.Fields(line)
	if len(words) < 2 || len(words[0]) != 1 {
		return e, fmt.Errorf("unknown line %q", line)
	}
	e.kind, e.latency = eventKind(words[0][0]), -1
	number := func(i int) (n int64) {
		if err == nil {
			n, err = strconv.ParseInt(words[i], 10, 64)
		}
		return n
	}
	want := map[eventKind]int{
		sending: 4, stored: 4, unsent: 4, refused: 4, confirmed: 4, lost: 4, delivered: 6, late: 3, weighed: 5, loaded: 2,
	}[e.kind]
	if len(words) != want {
		return e, fmt.Errorf("unknown line %q", line)
	}
	e.at = number(1)
	switch e.kind {
	case weighed:
		e.sample = usage{heap: uint64(number(2)), goroutines: int(number(3)), faults: number(4)}
	case late:
		e.took = number(2)
	case loaded:
	default:
		e.attempt = int(number(3))
		if err == nil {
			e.id, err = chanq.ParseID(words[2])
		}
		if e.kind == delivered {
			e.intent, e.latency = intent(words[4][0]), number(5)
		}
	}
	if err != nil {
		return e, fmt.Errorf("line %q: %w", line, err)
	}
	return e, nil
}

func now() int64 { return time.Now().UnixNano() }
