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

// Changes. Each comes as a form; one that deletes asks once more before it does.

// change is one that a visitor wants.
type change struct {
	Do     string // a key of deeds
	IDs    []chanq.ID
	Group  string // the Key of the group that is meant, instead of IDs
	Reason string
	Back   string // where to go afterwards: to the queue, to toFailures, or to the messages of a state
}

// deed is what a change does.
type deed struct {
	ask    string // what is asked before; "" is nothing
	notice string // what is said afterwards, %s being how many
	many   bool   // it is done to messages
	state  chanqadmin.State
	run    func(*chanqadmin.Queue, context.Context, chanqadmin.Select, chanqadmin.Change) (chanqadmin.Changed, error)
}

var deeds = map[string]deed{
	"pause": {
		notice: "The queue is paused: nothing is claimed any more, in any process.",
		run: func(q *chanqadmin.Queue, ctx context.Context, _ chanqadmin.Select, c chanqadmin.Change) (chanqadmin.Changed, error) {
			return chanqadmin.Changed{}, q.Pause(ctx, chanqadmin.Change{Actor: c.Actor, Reason: c.Reason})
		},
	},
	"resume": {
		notice: "The queue goes on.",
		run: func(q *chanqadmin.Queue, ctx context.Context, _ chanqadmin.Select, _ chanqadmin.Change) (chanqadmin.Changed, error) {
			return chanqadmin.Changed{}, q.Resume(ctx)
		},
	},
	"redrive": {notice: "%s ready again, with no attempts counted.", many: true, state: chanqadmin.StateDead, run: (*chanqadmin.Queue).Redrive},
	"purge": {
		ask: "Purge dead messages? They are deleted: there is no way back.", notice: "%s purged.", many: true, state: chanqadmin.StateDead,
		run: (*chanqadmin.Queue).Purge,
	},
	"cancel": {
		ask:    "Cancel messages? They are deleted, also from under the hands of who works on them. There is no way back.",
		notice: "%s cancelled.", many: true, run: (*chanqadmin.Queue).Cancel,
	},
}

// toFailures is a change's Back.
const toFailures = "failures"

const (
	mostForm   = 256 << 10 // bytes
	mostChosen = 1000      // messages of a form
	mostChange = 100_000   // messages of a group that one form changes
	mostReason = 400       // bytes
	changeTime = time.Minute
)

// askData is what the page shows that asks once more.
type askData struct {
	change
	Question string
	Count    int
	More     bool // there may be more
}

func (h *Handler) change(v *visit) (*answer, error) {
	name := v.PathValue("queue")
	v.Body = http.MaxBytesReader(v.w, v.Body, mostForm)
	if err := v.ParseForm(); err != nil {
		return nil, errForm
	}
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
	q, kind, err := h.store.queue(v.ctx, name)
	if err != nil {
		return nil, noQueue(err)
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
		return nil, err
	}
	return &answer{goTo: "q/" + url.PathEscape(name) + "/" + back(c.Back, h.notice(v, c.Do, n))}, nil
}

func readChange(form url.Values) (c change, d deed, err error) {
	c = change{Do: form.Get("do"), Group: form.Get("group"), Reason: form.Get("reason"), Back: form.Get("back")}
	d, known := deeds[c.Do]
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
		return c, d, &refusal{http.StatusBadRequest, "No message was chosen."}
	}
	return c, d, nil
}

// selection is what the change is about: the messages that were chosen, or those of a group.
func (c *change) selection(d deed) (chanqadmin.Select, error) {
	if len(c.IDs) > 0 || c.Group == "" {
		return chanqadmin.Select{State: d.state, IDs: c.IDs}, nil
	}
	s, ok := groupOf(c.Group)
	if !ok || d.state != s.State {
		return s, errForm
	}
	return s, nil
}

// bounded is a name that chanqadmin.Change.Actor admits.
func bounded(name string) string {
	name = strings.ReplaceAll(strings.ToValidUTF8(name, "?"), "\x00", "")
	return strings.ToValidUTF8(name[:min(len(name), sqlbatch.MaxPauseText)], "")
}

// do makes a change, and logs it. It goes on when who asked has gone: half of it would be
// done.
func (h *Handler) do(v *visit, q *chanqadmin.Queue, c change, d deed, s chanqadmin.Select) (n int, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(v.ctx), changeTime)
	defer cancel()
	log := h.cfg.Log.With("queue", q.Name(), "do", c.Do, "user", v.rights.User, "from", v.RemoteAddr, "reason", c.Reason, "select", s)
	log.Info("chanqweb: a change begins", "first", firstOf(c.IDs))
	by := chanqadmin.Change{Actor: bounded(v.rights.User), Reason: c.Reason, Limit: mostChange}
	if by.Actor == "" {
		by.Actor = "web UI"
	}
	done, err := d.run(q, ctx, s, by)
	if err != nil {
		log.Error("chanqweb: a change has failed", "changed", done.Messages, "error", err)
		return done.Messages, err
	}
	log.Info("chanqweb: a change was made", "changed", done.Messages)
	if err := h.store.changed(ctx, q.Name()); err != nil && !errors.Is(err, chanq.ErrNoSchema) {
		log.Debug("chanqweb: the figures are not renewed", "error", err)
	}
	return done.Messages, nil
}

func firstOf(ids []chanq.ID) string {
	if len(ids) == 0 {
		return ""
	}
	return ids[0].String()
}

// back is the page of a queue to which a form leads.
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

// noticeFor is for how long an address shows what was done.
const noticeFor = time.Minute

// notice is what an address says of a change that this visitor has just made.
func (h *Handler) notice(v *visit, do string, n int) url.Values {
	query := url.Values{"did": {do}, "n": {strconv.Itoa(n)}, "at": {strconv.FormatInt(v.now.Unix(), 10)}}
	query.Set("seal", h.sealOf(v, query))
	return query
}

func (h *Handler) sealOf(v *visit, query url.Values) string {
	n, _ := sentNonce(v.Request)
	return h.mac("notice", n, v.rights.User, query.Get("did"), query.Get("n"), query.Get("at"))
}

// noticeOf says what was done, if notice has made the address for this visitor, and lately: a link that anybody has made says nothing.
func (h *Handler) noticeOf(v *visit) string {
	query := v.URL.Query()
	d, known := deeds[query.Get("did")]
	_, visited := sentNonce(v.Request)
	at, err := strconv.ParseInt(query.Get("at"), 10, 64)
	if !known || !visited || err != nil || v.now.Sub(time.Unix(at, 0)).Abs() > noticeFor || !equal(query.Get("seal"), h.sealOf(v, query)) {
		return ""
	}
	n, _ := strconv.Atoi(query.Get("n"))
	switch {
	case !d.many:
		return d.notice
	case n == 0:
		return "No message was changed: none was there any more, or none that could be."
	case n == 1:
		return fmt.Sprintf(d.notice, "One message is")
	}
	text := fmt.Sprintf(d.notice, grouped(int64(n))+" messages are")
	if n >= mostChange {
		text += " There may be more of them: do it once more."
	}
	return text
}
