package chanqweb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/sqlbatch"
)

// Changes of queues. Each is a POST of a form. One that deletes messages, needs a reason, or changes many messages is asked about first.

// change is a change that a visitor requests.
type change struct {
	Do     string // the name of an action
	IDs    []chanq.ID
	Group  string // the Key of a group, instead of IDs
	Reason string
	Back   string // the page to show afterwards: "" for the queue, toFailures, toConsumers, or a state for its messages
	Type   string // of the messages on that page
	sure   bool   // the question was answered
	n      int    // how many messages the question was about
	before int64  // of a group, only messages that had died when the question was asked, in Unix milliseconds; 0: all
	here   bool   // the question is shown on the page of the message
}

// action is a kind of change.
type action struct {
	verb   string // on the button of the question
	ask    string // the question: %[1]s is the messages, and %[2]s the queue
	always bool   // it is asked about any number of messages
	reason bool   // it needs one
	notice string // what the page shows afterwards; %s is the number of messages
	many   bool   // it changes messages
	plain  bool   // not in ordered queues
	of     bool   // its ID is that of a consumer
	state  chanqadmin.State
	run    func(*chanqadmin.Queue, context.Context, chanqadmin.Select, chanqadmin.Change) (chanqadmin.Changed, error)
}

var actions = map[string]action{
	"pause": {
		verb: "Pause", ask: "Pause queue %[2]s? No process claims its messages until you resume it.", reason: true,
		notice: "The queue is paused: no process claims its messages.",
		run: func(q *chanqadmin.Queue, ctx context.Context, _ chanqadmin.Select, c chanqadmin.Change) (chanqadmin.Changed, error) {
			return chanqadmin.Changed{}, q.Pause(ctx, c)
		},
	},
	"resume": {
		notice: "The queue is resumed.",
		run: func(q *chanqadmin.Queue, ctx context.Context, _ chanqadmin.Select, c chanqadmin.Change) (chanqadmin.Changed, error) {
			return chanqadmin.Changed{}, q.Resume(ctx, c)
		},
	},
	"redrive": {
		verb: "Redrive", ask: "Redrive %[1]s of queue %[2]s? They become ready again, with no attempts counted.",
		notice: "%s ready again, with no attempts counted.", many: true, state: chanqadmin.StateDead, run: (*chanqadmin.Queue).Redrive,
	},
	"purge": {
		verb: "Purge", ask: "Purge %[1]s of queue %[2]s? They are deleted permanently. If they hold their keys, the later messages are delivered without them.",
		always: true, notice: "%s purged.", many: true, state: chanqadmin.StateDead, run: (*chanqadmin.Queue).Purge,
	},
	"cancel": {
		verb: "Cancel", ask: "Cancel %[1]s of queue %[2]s? They are deleted permanently. If a handler is working on one, its context is cancelled within about a second.",
		always: true, notice: "%s cancelled.", many: true, run: (*chanqadmin.Queue).Cancel,
	},
	"run": {notice: "%s due now.", many: true, plain: true, run: (*chanqadmin.Queue).RunNow},
	"release": {
		verb: "Release", ask: "Release %[1]s of queue %[2]s? They are delivered again now. If a handler of this consumer still runs, two handlers work on the same message: end its process first.",
		always: true, notice: "%s released.", many: true, of: true,
		run: func(q *chanqadmin.Queue, ctx context.Context, s chanqadmin.Select, c chanqadmin.Change) (chanqadmin.Changed, error) {
			return q.Release(ctx, s.IDs[0], c)
		},
	},
}

// toFailures and toConsumers are the Back of changes that were requested on these pages.
const toFailures, toConsumers = "failures", "consumers"

const (
	mostForm    = 256 << 10 // bytes
	mostChosen  = 100       // messages that a form names; a list has fewer
	mostUnasked = 100       // messages that are changed without a question
	mostReason  = 400       // bytes
)

func (h *Handler) change(v *visit) (*answer, error) {
	name := v.PathValue("queue")
	if err := h.permit(v, "queue", name); err != nil {
		return nil, err
	}
	if v.PostForm.Get("do") == "stop" {
		return h.stop(v, name), nil
	}
	c, d, err := readChange(v.PostForm)
	if err != nil {
		return nil, err
	}
	q, kind, err := h.open(v)
	if err != nil {
		return nil, err
	}
	if d.plain && kind == chanq.KindOrdered {
		return nil, errForm
	}
	frees := d.of && kind == chanq.KindOrdered
	if frees {
		d.ask += " Its slots become free as well, with messages that are not counted: those that it has had for a short time."
	}
	if key := v.PostForm.Get("dedup"); d.many && !d.of && key != "" {
		if c.IDs, err = q.Find(v.ctx, bounded(key)); err != nil {
			return nil, err
		}
		if len(c.IDs) == 0 {
			return h.say(v, name, c, "No ready, scheduled or leased message has this dedup key: nothing was changed."), nil
		}
	}
	s, err := c.selection(d)
	if err != nil {
		return nil, err
	}
	if !c.sure || d.reason && c.Reason == "" {
		if c.n = len(c.IDs); c.Group != "" || d.of {
			found, err := d.run(q, v.ctx, s, chanqadmin.Change{DryRun: true})
			if err != nil {
				return nil, d.failed(0, err)
			}
			c.n = found.Messages // up to DryRunLimit
			if c.Group != "" && c.before == 0 {
				now, err := q.Now(v.ctx)
				if err != nil {
					return nil, d.failed(0, err)
				}
				c.before = now.UnixMilli()
			}
		}
		if d.always || d.reason && c.Reason == "" || c.n > mostUnasked {
			return h.ask(v, name, c, d), nil
		}
	}
	if c.n >= chanqadmin.DryRunLimit {
		return h.start(v, q, c, d, s)
	}
	ctx, cancel := v.steady()
	defer cancel()
	n, note, err := h.do(ctx, v, q, c, d, s, nil)
	if err != nil {
		return nil, d.failed(n, err)
	}
	text := d.result(n)
	if d.many && !d.of && n < len(c.IDs) {
		text = d.missed(ctx, q, n, c.IDs)
	}
	if frees {
		text = "The slots of the consumer are free. " + fmt.Sprintf(d.notice, areMessages(n)) + " Another consumer takes the slots with all their messages."
	}
	return h.say(v, name, c, text+note), nil
}

// ask returns the answer with the question about a change.
func (h *Handler) ask(v *visit, name string, c change, d action) *answer {
	many := messages(c.n)
	if c.n >= chanqadmin.DryRunLimit {
		many += " or more"
	}
	query := url.Values{"ask": {fmt.Sprintf(d.ask, many, name)}, "yes": {d.verb + " " + many}, "do": {c.Do}, "back": {c.Back}, "n": {strconv.Itoa(c.n)}}
	if !d.many {
		query.Set("yes", d.verb+" "+name)
	}
	for _, id := range c.IDs {
		query.Add("id", id.String())
	}
	if c.Group != "" {
		query.Set("group", c.Group)
		query.Set("before", strconv.FormatInt(c.before, 10))
	}
	if d.reason {
		query.Set("why", askReason(c.sure))
	}
	query = h.sealed(v, query)
	if c.here && len(c.IDs) == 1 {
		return &answer{goTo: "q/" + url.PathEscape(name) + "/m/" + c.IDs[0].String() + "?" + query.Encode()}
	}
	return &answer{goTo: "q/" + url.PathEscape(name) + "/" + c.back(query)}
}

// say returns the answer with the result of a change.
func (h *Handler) say(v *visit, name string, c change, text string) *answer {
	return &answer{goTo: "q/" + url.PathEscape(name) + "/" + c.back(h.sealed(v, url.Values{"said": {text}}))}
}

func readChange(form url.Values) (c change, d action, err error) {
	c = change{
		Do: form.Get("do"), Group: form.Get("group"), Reason: strings.TrimSpace(form.Get("reason")), Back: form.Get("back"), Type: form.Get("type"),
		sure: form.Get("sure") == "yes", here: form.Has("here"),
	}
	c.n, _ = strconv.Atoi(form.Get("n"))
	c.before, _ = strconv.ParseInt(form.Get("before"), 10, 64)
	d, known := actions[c.Do]
	if !known || len(c.Reason) > mostReason {
		return c, d, errForm
	}
	if c.Back != toFailures && c.Back != toConsumers && !slices.Contains(states, chanqadmin.State(c.Back)) {
		c.Back = ""
	}
	for _, text := range form["id"] {
		id, err := chanq.ParseID(text)
		if err != nil {
			return c, d, errForm
		}
		if !slices.Contains(c.IDs, id) {
			c.IDs = append(c.IDs, id)
		}
	}
	if len(c.IDs) > mostChosen {
		return c, d, errForm
	}
	if d.many && len(c.IDs) == 0 && (d.of || c.Group == "" && form.Get("dedup") == "") {
		return c, d, &refusal{http.StatusBadRequest, "Choose at least one message."}
	}
	return c, d, nil
}

// selection selects the messages of the change: the chosen ones, or those of a group.
func (c *change) selection(d action) (chanqadmin.Select, error) {
	if len(c.IDs) > 0 || c.Group == "" {
		return chanqadmin.Select{State: d.state, IDs: c.IDs}, nil
	}
	s, ok := groupOf(c.Group)
	if !ok || d.state != s.State {
		return s, errForm
	}
	if c.before > 0 {
		s.Before = time.UnixMilli(c.before)
	}
	return s, nil
}

// back returns the address of the page to show after a change, relative to that of the queue.
func (c *change) back(query url.Values) string {
	page := ""
	switch {
	case c.Back == toFailures || c.Back == toConsumers:
		page = c.Back
	case c.Back != "":
		page = "messages"
		query.Set("state", c.Back)
		if c.Type != "" {
			query.Set("type", c.Type)
		}
	}
	return page + "?" + query.Encode()
}

// bounded makes a name valid for chanqadmin.Change.Actor.
func bounded(name string) string {
	name = strings.ReplaceAll(strings.ToValidUTF8(name, "?"), "\x00", "")
	return strings.ToValidUTF8(name[:min(len(name), sqlbatch.MaxPauseText)], "")
}

// failed returns the error of an action that failed after n messages.
func (d action) failed(n int, err error) error {
	why := asRefusal(context.Background(), err)
	var op *chanq.OpError
	switch {
	case n > 0:
		why = &refusal{why.status, d.result(n) + " Then the change failed, and its last step might have been applied; repeat it for the rest. " + why.text}
	case errors.As(err, &op) && op.Unknown:
		why = errUnknown
	case why == errNoAnswer:
		why = errNotDone
	default:
		return err
	}
	return fmt.Errorf("%w: %w", why, err)
}

// steady returns a context that continues if the visitor disconnects, so that this leaves no change half done. It ends with Config.Timeout,
// so that a change is not applied after the visitor was told that it has failed.
func (v *visit) steady() (context.Context, context.CancelFunc) {
	until, _ := v.ctx.Deadline()
	return context.WithDeadline(context.WithoutCancel(v.ctx), until)
}

// actor returns the name of the visitor for the database.
func (v *visit) actor() string { return cmp.Or(bounded(v.rights.User), "web UI") }

// unlogged is what the result of a change says besides.
const unlogged = " The change is not in the log of changes, which could not be written."

// do makes a change, logs it, and returns how many messages it changed, also with an error. note is what the result must say besides.
func (h *Handler) do(ctx context.Context, v *visit, q *chanqadmin.Queue, c change, d action, s chanqadmin.Select, progress func(int)) (n int, note string, err error) {
	log := h.cfg.Log.With("queue", q.Name(), "do", c.Do, "user", v.rights.User, "from", v.RemoteAddr, "reason", c.Reason, "select", s)
	log.Info("chanqweb: a change begins", "first", firstOf(c.IDs))
	done, err := d.run(q, ctx, s, chanqadmin.Change{Actor: v.actor(), Reason: c.Reason, Progress: progress, Unlogged: func(err error) {
		note = unlogged
		log.Error("chanqweb: a change was made, but not logged", "error", err)
	}})
	if err != nil && ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), err) // SQLite only says that the file was locked
	}
	if err != nil {
		log.Error("chanqweb: a change failed", "changed", done.Messages, "error", err)
	} else {
		log.Info("chanqweb: a change was made", "changed", done.Messages)
	}
	h.store.watched(q.Name()).changed()
	return done.Messages, note, err
}

func firstOf(ids []chanq.ID) string {
	if len(ids) == 0 {
		return ""
	}
	return ids[0].String()
}

// result returns the sentence for an action that changed n messages.
func (d action) result(n int) string {
	switch {
	case !d.many:
		return d.notice
	case n == 0:
		return "No message was changed: the messages have ended, or cannot be changed."
	}
	return fmt.Sprintf(d.notice, areMessages(n))
}

// missed returns the sentence for an action that changed n of the messages with these IDs, and not all.
func (d action) missed(ctx context.Context, q *chanqadmin.Queue, n int, ids []chanq.ID) string {
	if len(ids) > 1 {
		if n == 0 {
			return d.result(0)
		}
		return fmt.Sprintf("%s The others of the %d have ended, or cannot be changed.", d.result(n), len(ids))
	}
	switch e, err := q.GetPart(ctx, ids[0], 0, 0); {
	case errors.Is(err, chanq.ErrNotFound):
		return "The message is gone: nothing was changed. It was acked, purged, cancelled or trimmed."
	case err != nil:
		return d.result(0)
	case e.State == chanqadmin.StateDead && d.state == e.State:
		return "The message is still dead: one with its ID or dedup key is in the queue."
	default:
		return fmt.Sprintf("The message is %s now: nothing was changed.", e.State)
	}
}

// messages and areMessages return the number of messages in words.
func messages(n int) string {
	if n == 1 {
		return "one message"
	}
	return grouped(int64(n)) + " messages"
}

func areMessages(n int) string {
	if n == 1 {
		return "One message is"
	}
	return messages(n) + " are"
}
