package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqfindings"
)

// queues checks each queue as its programs use it.
func (e *examination) queues() {
	names := e.Queues
	if len(names) == 0 {
		ctx, cancel := context.WithTimeout(e.ctx, e.Look)
		defer cancel()
		var err error
		if names, err = chanqadmin.Queues(ctx, e.DB, e.Config); err != nil {
			e.unlisted(err, ctx.Err())
			return
		}
		if len(names) == 0 {
			e.add(Finding{Check: "queues", Status: Warning, Found: "there is no queue in this schema", Remedy: "chanq migrate QUEUE makes one; or give --schema, if they are in another"})
		}
	}
	examined := chanqfindings.Examine(e.ctx, e.DB, e.Config, names)
	ctx, cancel := context.WithTimeout(e.ctx, queuesLooks*e.Look)
	defer cancel()
	e.ctx = ctx // these checks are the last
	for _, q := range examined {
		e.queue(q)
	}
}

// queuesLooks is how many times the time limit of one check those of all queues may take together.
const queuesLooks = 4

// unlisted reports why the names of the queues cannot be read: late is set if the time is over.
func (e *examination) unlisted(err, late error) {
	ctx, cancel := context.WithTimeout(e.ctx, e.Look)
	defer cancel()
	f := chanqfindings.Figures{At: time.Now(), Err: errors.Join(err, late)}
	f.Locks, _ = chanqadmin.Locks(ctx, e.DB, "any", e.Config) // of the tables that all queues share
	found := chanqfindings.Of(f, e.Limits, time.Now())
	if !is(found, chanqfindings.Locked, chanqfindings.Unreachable) {
		e.unseen("queues", "", err)
		return
	}
	e.report(found)
}

// queue reports the findings of a queue, and checks its tables and what this login may do with it.
func (e *examination) queue(q chanqfindings.Examined) {
	if q.At.IsZero() && q.Err != nil { // it says nothing about the queue
		e.unseen("messages", q.Queue, q.Err)
		return
	}
	found := chanqfindings.Of(q.Figures, e.Limits, time.Now())
	if is(found, chanqfindings.Locked, chanqfindings.Unreachable) {
		e.report(found) // other checks would hang
		return
	}
	ctx, cancel := context.WithTimeout(e.ctx, e.Look)
	defer cancel()
	add := func(check string, status Status, found, remedy string) {
		e.add(Finding{check, q.Queue, status, found, remedy})
	}
	config, err := chanq.StoredConfig(ctx, e.DB, q.Queue, e.Config)
	if err == nil {
		_, err = chanq.Open[[]byte](ctx, e.DB, q.Queue, config)
	}
	switch {
	case e.ctx.Err() != nil:
		e.report(found)
		e.unseen("tables", q.Queue, fmt.Errorf("not checked: the checks of all queues took %v; chanq doctor %s checks this one", queuesLooks*e.Look, q.Queue))
		return
	case errors.Is(err, chanq.ErrNotDurable):
		add("durability", Failure, err.Error(), "apply the remedy that it names; if a loss of messages in a crash is acceptable, set Config.Durability")
		return
	case err != nil:
		add("tables", Failure, err.Error(), remedyOf(err, q.Queue))
		return
	}
	add("durability", OK, "what is committed is kept, as far as this connection's settings say", "")
	e.rights(q.Queue)
	if q.Err != nil {
		add("messages", Unseen, q.Err.Error(), "")
		return
	}
	s := q.Stats
	add("messages", OK, fmt.Sprintf("%s ready, %s leased, %s dead; the oldest ready one has been due for %v; %d consumers", counted(s.Ready, s.Limit), counted(s.Leased, s.Limit), counted(s.Dead, s.Limit),
		round(s.OldestReady), len(q.Consumers)), "")
	e.report(found)
	_, err = q.Admin.History(ctx, time.Now(), chanqadmin.StepFine)
	switch {
	case errors.Is(err, chanq.ErrNoSchema):
		add("history", Warning, "the table of samples is missing: charts and rates stay empty, and failing attempts are not found", "chanq migrate "+q.Queue)
	case err != nil:
		e.unseen("history", q.Queue, err)
	}
}

// statuses are how severe findings are.
var statuses = map[chanqfindings.Severity]Status{chanqfindings.Failure: Failure, chanqfindings.Warning: Warning, chanqfindings.Notice: Warning}

// report adds findings of a queue, one that concerns the whole database only once.
func (e *examination) report(found []chanqfindings.Finding) {
	for _, f := range found {
		one := Finding{string(f.Kind), f.Queue, statuses[f.Severity], f.Text, f.Remedy}
		if f.Queue != "" || !slices.ContainsFunc(e.findings, func(known Finding) bool { return known.Check == one.Check && known.Queue == "" }) {
			e.add(one)
		}
	}
}

func is(found []chanqfindings.Finding, kinds ...chanqfindings.Kind) bool {
	return slices.ContainsFunc(found, func(f chanqfindings.Finding) bool { return slices.Contains(kinds, f.Kind) })
}

func remedyOf(err error, queue string) string {
	if errors.Is(err, chanq.ErrNoSchema) {
		return "chanq migrate " + queue
	}
	return ""
}

func counted(n, limit int) string {
	if n >= limit {
		return fmt.Sprintf("%d or more", n)
	}
	return fmt.Sprint(n)
}
