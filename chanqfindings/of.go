package chanqfindings

import (
	"bytes"
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
)

// Limits are when a queue is in trouble. The zero value suits most queues.
type Limits struct {
	// Stuck is how long a message may be leased before it counts as stuck, if ten times the usual time of the queue is not longer. Set it
	// above the time that your slowest handler needs. Default: 1 min.
	Stuck time.Duration
	// Late is how long the oldest ready message may wait. Default: 0, any time.
	Late time.Duration
}

// Check returns what is wrong with the limits, or nil.
func (l Limits) Check() error {
	var errs []error
	if l.Stuck < 0 {
		errs = append(errs, fmt.Errorf("Limits.Stuck is %v: must be 0 (1 min) or more", l.Stuck))
	}
	if l.Late < 0 {
		errs = append(errs, fmt.Errorf("Limits.Late is %v: must be 0 (any time) or more", l.Late))
	}
	return errors.Join(errs...)
}

// OldAfter is the age from which figures say nothing about now.
const OldAfter = 15 * time.Second

const (
	stuckAfter = time.Minute
	mostStill  = recently - chanqadmin.StepFine // the samples show no more
	usually    = 10                             // times the usual time of a lease a message may be leased

	// lostAfter is how long a message has been leased before its consumer, which is not heard, counts as lost: a consumer is listed shortly
	// after its start.
	lostAfter = chanqadmin.HeardFor

	// lockedFor is how long the transaction of a lock must have been open: a migration locks tables for a moment.
	lockedFor = time.Second

	failResults  = 20              // results that are looked at, at least
	failWithin   = 2 * time.Minute // not older than this
	failSome     = 20              // percent of them that fail: a warning
	failMost     = 50              // percent: a failure
	failTimes    = 8               // attempts of one message, whatever becomes of others: about 2 min by default
	failSoon     = 3               // attempts of one message, unless more attempts succeed than fail
	shownOfError = 120             // characters of an error
)

// Of returns the findings of a queue at a time, the worst first. It reads nothing. Where one fault explains another, only the cause is
// found: no consumer can send a heartbeat while the file is locked, for example.
func Of(f Figures, l Limits, now time.Time) []Finding {
	e := &examination{Figures: f, Limits: l, now: now}
	if e.Limits.Stuck == 0 {
		e.Limits.Stuck = stuckAfter
	}
	switch {
	case e.locked(), e.unread():
	default:
		e.consumers()
		e.stuck()
		e.failing()
		e.dead()
		if f.Stats.Paused {
			e.paused()
		}
		e.late()
	}
	return Worst(e.found)
}

type examination struct {
	Figures
	Limits
	now   time.Time
	found []Finding
}

func (e *examination) add(k Kind, s Severity, since time.Time, path, text, remedy string) {
	if path != "" && e.Queue != "" {
		path = "q/" + e.Queue + "/" + strings.TrimPrefix(path, ".")
	}
	e.found = append(e.found, Finding{e.Queue, k, s, text, since, strings.ReplaceAll(remedy, "{queue}", e.Queue), path})
}

// has reports whether there is a finding of one of these kinds.
func (e *examination) has(kinds ...Kind) bool {
	return slices.ContainsFunc(e.found, func(f Finding) bool { return slices.Contains(kinds, f.Kind) })
}

func (e *examination) locked() bool {
	for _, l := range e.Locks {
		if l.For < lockedFor && e.Err == nil {
			continue
		}
		text := "locked by " + cmp.Or(l.Program, "a program without a name")
		if l.Session != 0 {
			text += fmt.Sprintf(" (session %d)", l.Session)
		}
		remedy := "end its transaction; if its program cannot: " + l.End
		if l.File {
			text = "another connection has the write lock of the file"
			if l.Session != 0 {
				text = fmt.Sprintf("the file is locked for writing by %s (process %d)", cmp.Or(l.Program, "a program"), l.Session)
			}
			remedy = "end the transaction of that program, or the program; split large writes into short transactions (fuser on the file names the processes that have it open)"
		}
		var since time.Time
		if l.For > 0 {
			text += " for " + lasting(l.For)
			if l.File {
				text += " or longer"
			}
			since = e.At.Add(-l.For)
		}
		e.add(Locked, Failure, since, ".", text, remedy)
		if l.File {
			e.found[0].Queue, e.found[0].Path = "", ""
		}
		return true // the one that was first
	}
	return false
}

func (e *examination) unread() bool {
	var network net.Error
	var op *chanq.OpError
	err := e.Err
	switch {
	case err == nil && e.now.Sub(e.At) <= OldAfter:
		return false
	case err == nil:
		e.add(Unknown, Warning, e.At, ".", "the last figures are "+lasting(e.now.Sub(e.At))+" old", "chanq doctor {queue} looks for the cause")
	case e.At.IsZero(): // see Examine
		e.add(Unknown, Warning, time.Time{}, ".", "the database has not been asked in time", "chanq doctor {queue} looks at this queue alone")
	case errors.As(err, &op) && op.Unknown, errors.As(err, &network), errors.Is(err, driver.ErrBadConn), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, chanq.ErrUnavailable),
		errors.Is(err, context.DeadlineExceeded):
		e.add(Unreachable, Failure, time.Time{}, ".", "the database does not answer", "repair the database, or the network to it: programs then continue by themselves")
	case errors.Is(err, chanq.ErrNoSchema):
		e.add(Unknown, Failure, time.Time{}, "", "the tables of the queue are missing, or older than this program", "start a program that migrates the queue, or chanq migrate {queue}, for an ordered one with --ordered")
	case errors.Is(err, chanq.ErrNewerSchema):
		e.add(Unknown, Failure, time.Time{}, "", "the tables of the queue are newer than this program", "upgrade this program")
	default:
		e.add(Unknown, Failure, time.Time{}, ".", "the database refuses to show the figures", "chanq doctor {queue} shows the error")
	}
	return true
}

// silent is a consumer that is not heard.
type silent struct {
	id       chanq.ID
	name     string
	heard    time.Time // zero: it is not listed
	took     time.Time // when it took its last message; zero: not known
	messages int
}

// consumers finds consumers that are not heard, or that nothing consumes.
func (e *examination) consumers() {
	of := map[chanq.ID]*silent{}
	var end time.Time // of the last lease
	heard, messages := 0, 0
	for _, c := range e.Consumers { // on an ordered queue it is listed as long as it has slots
		if e.heard(c) {
			heard++
			continue
		}
		of[c.ID], end = &silent{id: c.ID, name: c.Name, heard: c.Heard}, later(end, c.Until)
	}
	for i := range e.Leased {
		m := &e.Leased[i]
		if !e.unheard(*m) || !m.HeldSince.IsZero() && e.Now.Sub(m.HeldSince) < lostAfter {
			continue
		}
		c := of[m.Consumer]
		if c == nil {
			c = &silent{id: m.Consumer, name: m.LeasedBy}
			of[m.Consumer] = c
		}
		c.messages, c.took, end = c.messages+1, later(c.took, m.HeldSince), later(end, m.LeaseUntil)
		messages++
	}
	switch {
	case len(of) > 0:
		one := slices.MinFunc(slices.Collect(maps.Values(of)), func(a, b *silent) int {
			return cmp.Or(cmp.Compare(a.name, b.name), bytes.Compare(a.id[:], b.id[:]))
		})
		name := cmp.Or(one.name, "without a name")
		text, whose := "consumer "+name+" is not heard", ""
		if len(of) > 1 {
			text, whose = fmt.Sprintf("%d consumers are not heard, with %s in hand, for example %s", len(of), counted(messages, chanqadmin.MostListed, "message"), name), " for "+name
		}
		if !one.heard.IsZero() {
			text += ", last heard " + lasting(e.Now.Sub(one.heard)) + " ago"
		}
		if one.messages == 0 {
			text += ", and has slots"
		} else {
			text += fmt.Sprintf(", with %s in hand", counted(one.messages, chanqadmin.MostListed, "message"))
		}
		if !one.took.IsZero() {
			text += ", the last taken " + lasting(e.Now.Sub(one.took)) + " ago"
		}
		severity := Warning
		if heard == 0 {
			severity, text = Failure, text+"; no other runs"
		}
		e.add(ConsumerLost, severity, later(one.heard, one.took), "consumers", text, fmt.Sprintf("look at its process and its log, and start it again: its messages are delivered again when their leases end, in %s at the latest; Release in the web UI, or chanq release {queue} %s, ends them now%s; chanq peek --state leased {queue} lists them", lasting(max(0, end.Sub(e.Now))), one.id, whose))
	case e.Stats.Ready > 0 && len(e.Consumers) == 0 && !e.Stats.Paused && !e.consumed():
		e.add(NoConsumer, Failure, e.Now.Add(-e.Stats.OldestReady), ".", fmt.Sprintf("no consumer runs; %s wait%s, the oldest for %s", counted(e.Stats.Ready, e.Stats.Limit, "message"), verb(e.Stats.Ready), lasting(e.Stats.OldestReady)),
			"start a consumer; if its process runs, its log reports an outage or a missing permission (Hooks.Availability, Consumer.Err)")
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// consumed reports whether something takes messages, listed or not: a role might lack the permission to be listed.
func (e *examination) consumed() bool {
	return len(e.Leased) > 0 || e.Stats.OldestReady < chanqadmin.StepFine && slices.ContainsFunc(e.Recent, func(s chanqadmin.Sample) bool {
		return s.Delivered > 0 && e.Now.Sub(s.At) <= time.Minute
	})
}

// results looks at the samples that end by a time. It returns how many messages were settled, and how many were leased, in all those
// samples whose messages were counted, for each of which there are samples of a time.
func (e *examination) results(by time.Time) (n int64, inHand int, of time.Duration) {
	samples := 0
	for _, s := range e.Recent {
		if s.At.Add(s.Step).After(by) {
			continue
		}
		n += s.Acked + s.Nacked + s.Died
		of += s.Step
		if s.Counted {
			inHand += s.Leased
			samples++
		}
	}
	return n, inHand, of / time.Duration(max(samples, 1))
}

// oldest returns when the first of the leased messages was taken. The rows of ordered queues do not say so: it was before the samples in
// which nothing happened.
func (e *examination) oldest() time.Time {
	first := e.Now
	for i := range e.Leased {
		if since := e.Leased[i].HeldSince; !since.IsZero() && since.Before(first) {
			first = since
		}
	}
	if e.Spec.Kind == chanq.KindOrdered {
		for _, s := range slices.Backward(e.Recent) {
			if first = s.At.Add(s.Step); happened(s) {
				break
			}
		}
	}
	return first
}

// happened reports whether messages were delivered or settled.
func happened(s chanqadmin.Sample) bool { return s.Delivered+s.Acked+s.Nacked+s.Died > 0 }

// limit returns how long a message may be leased. Messages that are stuck now do not make it longer, unless nothing was settled before
// the first of them was taken, and others are settled now.
func (e *examination) limit() time.Duration {
	limit := e.Limits.Stuck
	n, inHand, of := e.results(e.oldest())
	if n == 0 && !e.still(limit) {
		n, inHand, of = e.results(e.Now.Add(chanqadmin.StepFine))
	}
	if n > 0 { // a message is usually leased for this long, by Little's law
		limit = max(limit, usually*of*time.Duration(inHand)/time.Duration(n))
	}
	return limit
}

func (e *examination) stuck() {
	limit, inHand := e.limit(), max(e.Stats.Leased, len(e.Leased))
	ordered := e.Spec.Kind == chanq.KindOrdered
	n := 0
	var longest *chanqadmin.Entry
	var first time.Time // since when that one has been leased
	holders := map[chanq.ID]bool{}
	for i := range e.Leased {
		m := &e.Leased[i]
		since := e.since(m)
		if since.IsZero() || m.Consumer.IsZero() || e.unheard(*m) || e.Now.Sub(since) < limit {
			continue
		}
		if n++; longest == nil || since.Before(first) {
			longest, first = m, since
		}
		holders[m.Consumer] = true
	}
	if ordered && len(e.Leased) > 0 && len(e.Consumers) > 0 && !e.has(ConsumerLost) && e.still(limit) {
		for i := range e.Leased {
			holders[e.Leased[i].Consumer] = true
		}
		since := e.oldest()
		e.stuckBy(Failure, since, &e.Leased[0], len(holders), fmt.Sprintf("%s in hand, and none was settled for %s", counted(inHand, e.Stats.Limit, "message"), lasting(e.Now.Sub(since))))
		return
	}
	if n > 0 {
		severity, text := Failure, "the only message in hand has been leased"
		switch {
		case ordered: // messages that are in hand for a short time are not leased in their rows
			severity, text = Warning, counted(n, chanqadmin.MostListed, "message")+" "+has(n)+" been leased"
		case n < inHand:
			severity, text = Warning, fmt.Sprintf("%d of %s in hand %s been leased", n, counted(inHand, e.Stats.Limit, "message"), has(n))
		case n > 1:
			text = fmt.Sprintf("all %s in hand have been leased", counted(n, chanqadmin.MostListed, "message"))
		}
		e.stuckBy(severity, first, longest, len(holders), text+" for "+lasting(e.Now.Sub(first)))
	}
}

// stuckBy adds a finding about stuck messages, of which one is an example.
func (e *examination) stuckBy(severity Severity, since time.Time, one *chanqadmin.Entry, holders int, text string) {
	text += ofType(one.Type) + ", by " + cmp.Or(one.LeasedBy, "a consumer without a name")
	if holders > 1 {
		text += fmt.Sprintf(" and %d more", holders-1)
	}
	e.add(Stuck, severity, since, "messages?state=leased", text, "a call in the handler probably hangs: Messages in the web UI, or chanq peek --state leased {queue}, lists the messages; dump the goroutines of the program (SIGQUIT, or net/http/pprof), give the call a deadline, and restart the program")
}

// ofType names the type of a message, if it has one.
func ofType(kind string) string {
	if kind == "" {
		return ""
	}
	return ", of type " + kind
}

// still reports whether the samples show that no message was delivered or settled for a while. It is for ordered queues, whose rows do not
// contain the time of the delivery.
func (e *examination) still(last time.Duration) bool {
	last = min(last, mostStill)
	var seen time.Duration
	for _, s := range e.Recent {
		if e.Now.Sub(s.At) > last+chanqadmin.StepFine {
			continue
		}
		if happened(s) {
			return false
		}
		seen += s.Step
	}
	return seen >= last
}

// tally is how many of the last results failed.
type tally struct {
	failed, results int64
	share           int // percent; 0: too few results, or too few of them failed
	since           time.Time
}

// fails looks at the last samples that have failResults together.
func (f *Figures) fails() tally {
	var t tally
	for _, s := range slices.Backward(f.Recent) {
		if t.results >= failResults || f.Now.Sub(s.At) > failWithin {
			break
		}
		t.failed, t.results, t.since = t.failed+s.Nacked+s.Died, t.results+s.Acked+s.Nacked+s.Died, s.At
	}
	if t.results >= failResults && t.failed*100 >= failSome*t.results {
		t.share = int(t.failed * 100 / t.results)
	}
	return t
}

func (e *examination) failing() {
	t := e.fails()
	if t.share == 0 {
		e.failsAgain(t)
		return
	}
	for _, s := range slices.Backward(e.Recent) { // since when at least as many failed
		n := s.Acked + s.Nacked + s.Died
		if n == 0 { // it does not say that they failed even then
			continue
		}
		if (s.Nacked+s.Died)*100 < failSome*n {
			break
		}
		t.since = s.At
	}
	severity := Warning
	if t.share >= failMost {
		severity = Failure
	}
	text := fmt.Sprintf("%d of the last %d attempts failed", t.failed, t.results)
	if t.failed == t.results {
		text = fmt.Sprintf("all of the last %d attempts failed", t.results)
	}
	e.failure(severity, t.since, text, e.topError())
}

// failsAgain finds messages that have failed many times, in a queue where few attempts fail, or there are few of them.
func (e *examination) failsAgain(t tally) {
	n, most, times := 0, 0, failTimes
	if t.failed*2 >= t.results { // or nothing was settled: these messages may wait for longer than that
		times = failSoon
	}
	var one *chanqadmin.Entry
	for _, list := range [][]chanqadmin.Entry{e.Retried, e.Leased} {
		for i := range list {
			failed := list[i].Attempts
			if list[i].State == chanqadmin.StateLeased { // the last one has not ended
				failed--
			}
			if failed < times {
				continue
			}
			if n++; failed > most {
				one, most = &list[i], failed
			}
		}
	}
	if n > 0 {
		upTo := ""
		if n > 1 {
			upTo = "up to "
		}
		e.failure(Warning, one.EnqueuedAt, fmt.Sprintf("%s %s failed %s%d times in %s", counted(n, mostRetried, "message"), has(n), upTo, most, lasting(e.Now.Sub(one.EnqueuedAt))), one)
	}
}

// failure adds a finding about failures, of which one is an example, if it is known.
func (e *examination) failure(severity Severity, since time.Time, text string, one *chanqadmin.Entry) {
	if one != nil {
		text += ofType(one.Type)
		if cause := shown(one); cause != "" {
			text += ": " + cause
		}
	}
	e.add(Failing, severity, since, "failures", text, "correct the handler, or the service that it calls: Failures in the web UI, or chanq peek --state scheduled {queue}, shows the errors of messages that wait for a retry, chanq causes {queue} those of dead ones")
}

// topError returns a message with the most common error of those that wait for a retry, or the last dead message.
func (e *examination) topError() (top *chanqadmin.Entry) {
	count := map[string]int{}
	for i := range e.Retried {
		m := &e.Retried[i]
		text := shown(m)
		if count[text]++; text != "" && (top == nil || count[text] > count[shown(top)]) {
			top = m
		}
	}
	if top == nil && len(e.Figures.Dead) > 0 {
		top = &e.Figures.Dead[0]
	}
	return top
}

// shown returns the first line of a message's error, shortened, without parts of bodies.
func shown(m *chanqadmin.Entry) string {
	line, _, _ := strings.Cut(strings.TrimSpace(m.RedactedError()), "\n")
	if text := []rune(line); len(text) > shownOfError {
		line = string(text[:shownOfError-1]) + "…"
	}
	return line
}

// redrive is the remedy for dead messages.
const redrive = "Failures in the web UI, or chanq causes {queue}, groups them; when the cause is fixed, Redrive there, or chanq redrive {queue}; if they cannot succeed, Purge, or chanq purge --state dead {queue}"

func (e *examination) dead() {
	if len(e.Figures.Dead) == 0 {
		return
	}
	keys := map[string]bool{}
	if e.Spec.DeadKey == chanq.DeadKeyHolds {
		for i := range e.Figures.Dead {
			keys[e.Figures.Dead[i].Key] = true
		}
		delete(keys, "")
	}
	behind, held := 0, map[string]bool{}
	for i := range e.Behind {
		if keys[e.Behind[i].Key] {
			behind++
			held[e.Behind[i].Key] = true
		}
	}
	var since time.Time // the first death that holds one of the keys
	for i := range e.Figures.Dead {
		if m := &e.Figures.Dead[i]; held[m.Key] && (since.IsZero() || m.EndedAt.Before(since)) {
			since = m.EndedAt
		}
	}
	onward := ""
	if e.Spec.DeadKey == chanq.DeadKeyHolds {
		onward = ", which lets the later messages of their keys go on without them"
	}
	if behind > 0 {
		e.add(BlockedKey, Failure, since, "slots", fmt.Sprintf("%s of %s wait%s for dead messages of the same key, for %s", counted(behind, chanqadmin.MostListed, "ready message"), counted(len(held), 100, "key"), verb(behind), lasting(e.Now.Sub(since))),
			redrive+onward+"; Slots in the web UI names the keys")
	}
	last := &e.Figures.Dead[0]
	text := counted(e.Stats.Dead, e.Stats.Limit, "message") + " " + are(e.Stats.Dead) + " dead, the last for " + lasting(e.Now.Sub(last.EndedAt)) + ofType(last.Type)
	if cause := shown(last); cause != "" {
		text += ": " + cause
	}
	e.add(Dead, Warning, last.EndedAt, "failures", text, redrive+onward)
}

func (e *examination) paused() {
	text := "paused"
	if !e.Pause.Since.IsZero() {
		text += " for " + lasting(e.Now.Sub(e.Pause.Since))
	}
	if e.Pause.By != "" {
		text += " by " + e.Pause.By
	}
	if e.Pause.Reason != "" {
		text += ": " + e.Pause.Reason
	}
	e.add(Paused, Notice, e.Pause.Since, ".", text, "if the reason no longer applies: Resume in the web UI, or chanq resume {queue}")
}

func (e *examination) late() {
	if e.Limits.Late == 0 || e.Stats.OldestReady <= e.Limits.Late || e.has(NoConsumer, BlockedKey, Paused) ||
		slices.ContainsFunc(e.found, func(f Finding) bool { return f.Severity == Failure && (f.Kind == Stuck || f.Kind == ConsumerLost) }) {
		return
	}
	e.add(Late, Warning, e.Now.Add(e.Limits.Late-e.Stats.OldestReady), ".", fmt.Sprintf("the oldest ready message has waited for %s, longer than %s", lasting(e.Stats.OldestReady), lasting(e.Limits.Late)),
		"start more consumers, or give Handle more workers: chanq top {queue} shows the rates")
}
