package chanqweb

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
)

// Changes. Each comes as a form; one that deletes asks once more before it does.

// change is one that somebody wants.
type change struct {
	Do    string // a key of deeds
	IDs   []chanq.ID
	Cause string // of the messages that are meant, instead of IDs
	Back  string // where to go afterwards: to the queue, to toFailures, or to the messages of a state
}

// deed is what a change does. It returns how many messages it changed.
type deed struct {
	ask    string // what is asked before; "" is nothing
	notice string // what is said afterwards, %s being how many
	many   bool   // it is done to messages
	run    func(context.Context, *chanqadmin.Queue, []chanq.ID) (int, error)
}

func byIDs(f func(*chanqadmin.Queue, context.Context, ...chanq.ID) ([]chanq.ID, error)) func(context.Context, *chanqadmin.Queue, []chanq.ID) (int, error) {
	return func(ctx context.Context, q *chanqadmin.Queue, ids []chanq.ID) (int, error) {
		found, err := f(q, ctx, ids...)
		return len(found), err
	}
}

func whole(f func(*chanqadmin.Queue, context.Context) error) func(context.Context, *chanqadmin.Queue, []chanq.ID) (int, error) {
	return func(ctx context.Context, q *chanqadmin.Queue, _ []chanq.ID) (int, error) { return 0, f(q, ctx) }
}

var deeds = map[string]deed{
	"pause":   {notice: "The queue is paused: nothing is claimed any more, in any process.", run: whole(func(q *chanqadmin.Queue, ctx context.Context) error { return q.Pause(ctx, "web UI") })},
	"resume":  {notice: "The queue goes on.", run: whole((*chanqadmin.Queue).Resume)},
	"redrive": {notice: "%s ready again, with no attempts counted.", many: true, run: byIDs((*chanqadmin.Queue).RedriveIDs)},
	"purge": {
		ask: "Purge dead messages? They are deleted: there is no way back.", notice: "%s purged.", many: true,
		run: byIDs((*chanqadmin.Queue).PurgeIDs),
	},
	"cancel": {
		ask:    "Cancel messages? They are deleted, also from under the hands of who works on them. There is no way back.",
		notice: "%s cancelled.", many: true, run: byIDs((*chanqadmin.Queue).Cancel),
	},
}

// toFailures is a change's Back.
const toFailures = "failures"

// aKey is what keyOf returns.
var aKey = regexp.MustCompile(`^[0-9a-f]{16}$`)

const (
	mostForm   = 256 << 10 // bytes
	changeTime = findCauses + findCauses
)

// askData is what the page shows that asks once more.
type askData struct {
	change
	Question string
	Count    int
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
	if d.ask != "" && v.PostForm.Get("sure") != "yes" {
		data := askData{change: c, Question: d.ask, Count: len(c.IDs)}
		return &answer{view: &view{Page: "ask", Tab: "messages", Name: "Are you sure?", Queue: name, Data: data}}, nil
	}
	q, _, err := h.store.queue(v.ctx, name)
	if err != nil {
		return nil, noQueue(err)
	}
	n, all, err := h.do(v, q, c, d)
	if err != nil {
		return nil, err
	}
	query := url.Values{"did": {c.Do}, "n": {strconv.Itoa(n)}}
	if !all {
		query.Set("more", "yes")
	}
	return &answer{goTo: "q/" + url.PathEscape(name) + "/" + back(c.Back, query)}, nil
}

func readChange(form url.Values) (c change, d deed, err error) {
	c = change{Do: form.Get("do"), Cause: form.Get("cause"), Back: form.Get("back")}
	d, known := deeds[c.Do]
	if !known {
		return c, d, errForm
	}
	if c.Cause != "" && !aKey.MatchString(c.Cause) {
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
	if len(c.IDs) > causesAtOnce {
		return c, d, errForm
	}
	if d.many && len(c.IDs) == 0 && c.Cause == "" {
		return c, d, &refusal{http.StatusBadRequest, "No message was chosen."}
	}
	return c, d, nil
}

// do makes a change, and logs it. It goes on when who asked has gone: half of it would be
// done.
func (h *Handler) do(v *visit, q *chanqadmin.Queue, c change, d deed) (n int, all bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(v.ctx), changeTime)
	defer cancel()
	log := h.cfg.Log.With("queue", q.Name(), "do", c.Do, "user", v.rights.User, "from", v.RemoteAddr)
	all = true
	if c.Cause != "" && len(c.IDs) == 0 {
		log = log.With("cause", c.Cause)
		log.Info("chanqweb: a change begins", "messages", "all of the cause")
		n, all, err = h.toCause(ctx, v, q, c.Cause, func(ids []chanq.ID) (int, error) { return d.run(ctx, q, ids) })
	} else {
		log.Info("chanqweb: a change begins", "messages", len(c.IDs), "first", firstOf(c.IDs))
		n, err = d.run(ctx, q, c.IDs)
	}
	if err != nil {
		log.Error("chanqweb: a change has failed", "changed", n, "error", err)
		return n, false, err
	}
	log.Info("chanqweb: a change was made", "changed", n, "all", all)
	if err := h.store.changed(ctx, q.Name()); err != nil && !errors.Is(err, chanq.ErrNoSchema) {
		log.Debug("chanqweb: the figures are not renewed", "error", err)
	}
	return n, all, nil
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

// noticeOf says what was done, by what back has put into the address.
func noticeOf(query url.Values) string {
	d, known := deeds[query.Get("did")]
	n, err := strconv.Atoi(query.Get("n"))
	var text string
	switch {
	case !known || err != nil || n < 0:
		return ""
	case !d.many:
		text = d.notice
	case n == 0:
		text = "No message was changed: none was there any more, or none that could be."
	case n == 1:
		text = fmt.Sprintf(d.notice, "One message is")
	default:
		text = fmt.Sprintf(d.notice, grouped(int64(n))+" messages are")
	}
	if query.Get("more") != "" && d.many {
		text += " There may be more of them: do it once more."
	}
	return text
}
