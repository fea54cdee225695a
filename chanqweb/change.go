package chanqweb

import (
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

// Changes. Each is a POST of a form. One that deletes messages needs a second form that confirms it.

// change is a change that a visitor requests.
type change struct {
	Do     string // the name of an action
	IDs    []chanq.ID
	Group  string // the Key of a group, instead of IDs
	Reason string
	Back   string // the page to show afterwards: "" for the queue, toFailures, or a state for its messages
}

// action is a kind of change.
type action struct {
	ask    string // the question of the second form; "": no second form
	notice string // what the page shows afterwards; %s is the number of messages
	many   bool   // it changes messages
	state  chanqadmin.State
	run    func(*chanqadmin.Queue, context.Context, chanqadmin.Select, chanqadmin.Change) (chanqadmin.Changed, error)
}

var actions = map[string]action{
	"pause": {
		notice: "The queue is paused: no process claims its messages.",
		run: func(q *chanqadmin.Queue, ctx context.Context, _ chanqadmin.Select, c chanqadmin.Change) (chanqadmin.Changed, error) {
			c.Limit = 0
			return chanqadmin.Changed{}, q.Pause(ctx, c)
		},
	},
	"resume": {
		notice: "The queue is resumed.",
		run: func(q *chanqadmin.Queue, ctx context.Context, _ chanqadmin.Select, c chanqadmin.Change) (chanqadmin.Changed, error) {
			c.Limit = 0
			return chanqadmin.Changed{}, q.Resume(ctx, c)
		},
	},
	"redrive": {notice: "%s ready again, with no attempts counted.", many: true, state: chanqadmin.StateDead, run: (*chanqadmin.Queue).Redrive},
	"purge": {
		ask: "Purge dead messages? They are deleted permanently. If they hold their keys, the later messages are delivered without them.", notice: "%s purged.", many: true, state: chanqadmin.StateDead,
		run: (*chanqadmin.Queue).Purge,
	},
	"cancel": {
		ask:    "Cancel messages? They are deleted permanently. If a handler is working on one, its context is cancelled within about a second.",
		notice: "%s cancelled.", many: true, run: (*chanqadmin.Queue).Cancel,
	},
}

// toFailures is the Back of a change that was requested on the page of failures.
const toFailures = "failures"

const (
	mostForm   = 256 << 10 // bytes
	mostChosen = 1000      // messages that a form names
	mostChange = 100_000   // messages of a group that a form changes
	mostReason = 400       // bytes
)

// askData is the data of the page with the second form.
type askData struct {
	change
	Question string
	Count    int
	More     bool // there may be more than Count
}

func (h *Handler) change(v *visit) (*answer, error) {
	name := v.PathValue("queue")
	refuse := func(why *refusal) (*answer, error) {
		h.cfg.Log.Warn("chanqweb: a change was refused", "queue", name, "user", v.rights.User, "from", v.RemoteAddr, "why", why.text)
		return nil, why
	}
	if !v.rights.Change {
		return refuse(errNoChange)
	}
	if !h.genuine(v.Request, v.rights.User) {
		return refuse(errNoToken)
	}
	c, d, err := readChange(v.PostForm)
	if err != nil {
		return nil, err
	}
	s, err := c.selection(d)
	if err != nil {
		return nil, err
	}
	q, kind, err := h.open(v)
	if err != nil {
		return nil, err
	}
	if d.ask != "" && v.PostForm.Get("sure") != "yes" {
		data := askData{change: c, Question: d.ask, Count: len(c.IDs)}
		if c.Group != "" {
			found, err := d.run(q, v.ctx, s, chanqadmin.Change{DryRun: true})
			if err != nil {
				return nil, err
			}
			data.Count, data.More = found.Messages, found.More
		}
		return &answer{view: &view{Page: "ask", Tab: "messages", Name: "Are you sure?", Queue: name, Kind: kind, Data: data}}, nil
	}
	n, err := h.do(v, q, c, d, s)
	if err != nil {
		return nil, d.failed(n, err)
	}
	return &answer{goTo: "q/" + url.PathEscape(name) + "/" + back(c.Back, h.notice(v, c.Do, n))}, nil
}

func readChange(form url.Values) (c change, d action, err error) {
	c = change{Do: form.Get("do"), Group: form.Get("group"), Reason: form.Get("reason"), Back: form.Get("back")}
	d, known := actions[c.Do]
	if !known || len(c.Reason) > mostReason {
		return c, d, errForm
	}
	if c.Back != toFailures && !slices.Contains(states, chanqadmin.State(c.Back)) {
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
	if d.many && len(c.IDs) == 0 && c.Group == "" {
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
	return s, nil
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

// do makes a change, logs it, and returns how many messages it changed, also with an error. It continues if the visitor disconnects, so
// that this leaves no change half done, and ends with Config.Timeout, so that it is not applied after the visitor was told that it has failed.
func (h *Handler) do(v *visit, q *chanqadmin.Queue, c change, d action, s chanqadmin.Select) (n int, err error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(v.ctx))
	if until, ok := v.ctx.Deadline(); ok {
		ctx, cancel = context.WithDeadline(context.WithoutCancel(v.ctx), until)
	}
	defer cancel()
	log := h.cfg.Log.With("queue", q.Name(), "do", c.Do, "user", v.rights.User, "from", v.RemoteAddr, "reason", c.Reason, "select", s)
	log.Info("chanqweb: a change begins", "first", firstOf(c.IDs))
	by := chanqadmin.Change{Actor: bounded(v.rights.User), Reason: c.Reason, Limit: mostChange}
	if by.Actor == "" {
		by.Actor = "web UI"
	}
	by.Unlogged = func(err error) {
		v.unlogged = true
		log.Error("chanqweb: a change was made, but not logged", "error", err)
	}
	done, err := d.run(q, ctx, s, by)
	if err != nil && ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), err) // SQLite only says that the file was locked
	}
	if err != nil {
		log.Error("chanqweb: a change failed", "changed", done.Messages, "error", err)
	} else {
		log.Info("chanqweb: a change was made", "changed", done.Messages)
	}
	h.store.watched(q.Name()).changed()
	return done.Messages, err
}

func firstOf(ids []chanq.ID) string {
	if len(ids) == 0 {
		return ""
	}
	return ids[0].String()
}

// back returns the address of the page to show after a change, relative to that of the queue.
func back(to string, query url.Values) string {
	page := ""
	switch {
	case to == toFailures:
		page = to
	case to != "":
		page = "messages"
		query.Set("state", to)
	}
	return page + "?" + query.Encode()
}

// noticeFor is how long an address shows the result of a change.
const noticeFor = time.Minute

// notice returns the query of an address that shows the result of a change to its visitor.
func (h *Handler) notice(v *visit, do string, n int) url.Values {
	query := url.Values{"did": {do}, "n": {strconv.Itoa(n)}, "at": {strconv.FormatInt(v.now.Unix(), 10)}}
	if v.unlogged {
		query.Set("unlogged", "1")
	}
	query.Set("seal", h.sealOf(v, query))
	return query
}

func (h *Handler) sealOf(v *visit, query url.Values) string {
	n, _ := sentNonce(v.Request)
	return h.mac("notice", n, v.rights.User, query.Get("did"), query.Get("n"), query.Get("at"), query.Get("unlogged"))
}

// noticeOf returns the result that the address shows, if notice made it for this visitor at most noticeFor ago. A link made by another
// person shows nothing.
func (h *Handler) noticeOf(v *visit) string {
	query := v.URL.Query()
	d, known := actions[query.Get("did")]
	_, visited := sentNonce(v.Request)
	at, err := strconv.ParseInt(query.Get("at"), 10, 64)
	if !known || !visited || err != nil || v.now.Sub(time.Unix(at, 0)).Abs() > noticeFor || !equal(query.Get("seal"), h.sealOf(v, query)) {
		return ""
	}
	n, _ := strconv.Atoi(query.Get("n"))
	text := d.result(n)
	if n >= mostChange {
		text += " There may be more of them: repeat the change."
	}
	if query.Get("unlogged") != "" {
		text += " The change is not in the log of changes, which could not be written."
	}
	return text
}

// result returns the sentence for an action that changed n messages.
func (d action) result(n int) string {
	switch {
	case !d.many:
		return d.notice
	case n == 0:
		return "No message was changed: the messages have ended, or cannot be changed."
	case n == 1:
		return fmt.Sprintf(d.notice, "One message is")
	}
	return fmt.Sprintf(d.notice, grouped(int64(n))+" messages are")
}
