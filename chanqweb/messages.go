package chanqweb

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqjobs"
	"github.com/chanq/chanq/sqlbatch"
)

// messagesAPage is the most messages of a page.
const messagesAPage = 50

var states = []chanqadmin.State{chanqadmin.StateReady, chanqadmin.StateScheduled, chanqadmin.StateLeased, chanqadmin.StateDead, chanqadmin.StateDone}

// messagesData is the data of a page of messages.
type messagesData struct {
	State  chanqadmin.State
	Type   string // of the messages of the list; "": of any
	States []chanqadmin.State
	List   []chanqadmin.Entry
	From   chanqadmin.PageToken
	Next   chanqadmin.PageToken
	Error  string // the fingerprint of the group that is listed, or ""
	Short  bool   // the page has fewer messages than its limit, and there may be more after Next
	// Typed, Keyed, Failed and Held mean that a message has a type, a key, an error, or a holder.
	Typed, Keyed, Failed, Held bool
}

func (h *Handler) messages(v *visit) (*answer, error) {
	name, query := v.PathValue("queue"), v.URL.Query()
	state := chanqadmin.State(query.Get("state"))
	if state == "" {
		state = chanqadmin.StateReady
	}
	if !slices.Contains(states, state) {
		return nil, errNoPage
	}
	q, kind, err := h.open(v)
	if err != nil {
		return nil, err
	}
	data := messagesData{State: state, Type: printable(bounded(query.Get("type"))), States: states, From: chanqadmin.PageToken(query.Get("from")), Error: query.Get("error")}
	if data.Error != "" && (state != chanqadmin.StateScheduled || !aFingerprint.MatchString(data.Error)) {
		return nil, errNoPage
	}
	page, err := q.List(v.ctx, chanqadmin.Select{State: state, Type: data.Type, Fingerprint: data.Error}, chanqadmin.List{After: data.From, Limit: messagesAPage})
	if err != nil {
		if op := (*chanq.OpError)(nil); data.From != "" && !errors.As(err, &op) && v.ctx.Err() == nil {
			return nil, errNoPlace // List has rejected the token
		}
		return nil, err
	}
	data.List, data.Next = page.Entries, page.Next
	data.Short = data.Next != "" && len(data.List) < messagesAPage
	longestFirst(data.List)
	for i := range data.List {
		e := &data.List[i]
		h.conceal(v, name, e)
		data.Typed = data.Typed || e.Type != ""
		data.Keyed = data.Keyed || e.Key != "" || e.DedupKey != ""
		data.Failed = data.Failed || e.LastError != ""
		data.Held = data.Held || state == chanqadmin.StateLeased
	}
	title := fmt.Sprintf("%s in %s", state, name)
	return &answer{view: &view{Page: "messages", Tab: "messages", Name: title, Queue: name, Kind: kind, Data: data}}, nil
}

// messageData is the data of the page of a message.
type messageData struct {
	chanqadmin.Entry
	Headers []headerLine
	// MoreHeaders are not shown.
	MoreHeaders int
	Life        []moment
	As          string   // the form of Text: json, text or hex
	Forms       []string // the forms that the body may have
	Text        string   // of the body
	Cut         bool     // Text has only its beginning
	Group       string   // the Key of its group
	Live        bool     // it is ready, scheduled or leased
	Batch       string   // the ID of its batch of jobs; "": it has none
	Progress    chanqjobs.Progress
}

type headerLine struct{ Name, Value string }

// moment is an event in the life of a message.
type moment struct {
	What               string
	At                 stampOf
	Coming             bool
	chanqadmin.Attempt // that ended then
}

const (
	bodyShown = 64 << 10 // the most bytes of a body on a page
	bodyPart  = 1 << 20  // bytes of a body that a download reads at once
	// headersShown and headerShown are the most headers on a page, and bytes of each.
	headersShown, headerShown = 40, 500
)

// entry returns the message that an address names, with a part of its body.
func (h *Handler) entry(v *visit, from, n int) (q *chanqadmin.Queue, e chanqadmin.Entry, kind chanq.Kind, err error) {
	id, err := chanq.ParseID(v.PathValue("id"))
	if err != nil {
		return nil, e, 0, errNoMessage
	}
	if q, kind, err = h.open(v); err != nil {
		return nil, e, 0, err
	}
	if e, err = q.GetPart(v.ctx, id, from, n); err != nil {
		return nil, e, 0, err
	}
	if h.redacts && len(e.Body) < e.Size {
		e.Body = nil // Redact could not find in a part what it hides
	}
	h.conceal(v, v.PathValue("queue"), &e)
	return q, e, kind, nil
}

func (h *Handler) message(v *visit) (*answer, error) {
	read := 0
	if v.rights.Bodies { // else it is hidden, and not read
		read = bodyShown
	}
	_, e, kind, err := h.entry(v, 0, read)
	if err != nil {
		return nil, err
	}
	name := v.PathValue("queue")
	data := messageData{Entry: e, Life: lifeOf(e, v), Live: e.State != chanqadmin.StateDead && e.State != chanqadmin.StateDone}
	if e.State == chanqadmin.StateDead {
		data.Group = keyOf(chanqadmin.Group{Cause: e.Cause, Fingerprint: cmp.Or(e.Fingerprint, chanqadmin.NoFingerprint)})
	}
	for n, value := range e.Headers {
		if v.rights.Bodies {
			data.Headers = append(data.Headers, headerLine{clip(n, headerShown), clip(value, headerShown)})
		} else {
			data.Headers = append(data.Headers, headerLine{clip(n, headerShown), ""})
		}
	}
	slices.SortFunc(data.Headers, func(a, b headerLine) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
	if v.rights.Bodies {
		data.As, data.Forms, data.Text, data.Cut = bodyAs(e.Body, e.Size > len(e.Body), v.URL.Query().Get("as"))
	}
	data.Entry.Body = nil // templates have Text
	data.Headers, data.MoreHeaders = upTo(data.Headers, headersShown)
	if batch, is := chanqjobs.InBatch(&chanq.Delivery{ID: e.ID}); is {
		data.Batch = batch.String()
	}
	data.Progress, err = chanqjobs.ReadProgress(v.ctx, h.store.db, name, e.ID, h.store.config)
	if err != nil && !errors.Is(err, chanqjobs.ErrNoProgress) { // for example, the role may not read it
		h.errors.failed(name, err)
	}
	note := chanqadmin.Entry{ID: e.ID, State: e.State, LastError: data.Progress.Note}
	h.conceal(v, name, &note)
	data.Progress.Note = note.LastError
	title := "Message " + e.ID.String()
	return &answer{view: &view{Page: "message", Tab: "messages", Name: title, Queue: name, Kind: kind, Data: data}}, nil
}

// bodyAs returns the text of a body in the wanted form, or in the first possible form of json, text and hex, and the forms that are
// possible. more reports that the body is longer.
func bodyAs(body []byte, more bool, wanted string) (as string, forms []string, text string, cut bool) {
	shown, cut := body, more
	if len(shown) > bodyShown {
		shown, cut = shown[:bodyShown], true
	}
	if !cut && json.Valid(body) {
		forms = append(forms, "json")
	}
	if utf8.Valid(cutRune(shown, cut)) {
		forms = append(forms, "text")
	}
	forms = append(forms, "hex")
	as = forms[0]
	if slices.Contains(forms, wanted) {
		as = wanted
	}
	switch as {
	case "json":
		var b bytes.Buffer
		if indentedSize(body) <= indentedShown && json.Indent(&b, body, "", "  ") == nil {
			return as, forms, printable(b.String()), cut
		}
		return as, forms, printable(string(body)), cut
	case "text":
		return as, forms, printable(string(cutRune(shown, cut))), cut
	}
	if most := bodyShown / 8; len(shown) > most {
		shown, cut = shown[:most], true
	}
	return as, forms, hex.Dump(shown), cut
}

// indentedShown is the most bytes of indented JSON on a page. A body that would be longer is shown as it is: 10,000 nested brackets have
// more than 100 MB of indentation.
const indentedShown = 2 * bodyShown

// indentedSize returns at least how long JSON is with an indentation of two spaces.
func indentedSize(body []byte) int {
	size, depth, quoted := len(body), 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			size += 1 + 2*depth
		case c == '}' || c == ']':
			depth--
			size += 1 + 2*depth
		case c == ',':
			size += 1 + 2*depth
		case c == ':':
			size++
		}
	}
	return size
}

// cutRune removes an incomplete character at the end of a body that was cut.
func cutRune(b []byte, cut bool) []byte {
	for i := 1; cut && i < utf8.UTFMax && i <= len(b); i++ {
		if r := b[len(b)-i:]; utf8.RuneStart(r[0]) {
			if !utf8.FullRune(r) {
				return b[:len(b)-i]
			}
			break
		}
	}
	return b
}

// body sends the whole body as a download, so that the browser does not show it. It reads and writes it in parts. If the message ends
// before the last one, or the database fails, the download fails.
func (h *Handler) body(v *visit) (*answer, error) {
	if !v.rights.Bodies {
		return nil, errNoBodies
	}
	first := bodyPart
	if h.redacts {
		first = sqlbatch.MaxBody // Redact needs all of it
	}
	q, e, _, err := h.entry(v, 0, first)
	if err != nil {
		return nil, err
	}
	size := e.Size
	if h.redacts {
		size = len(e.Body)
	}
	return &answer{stream: func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Disposition", `attachment; filename="`+e.ID.String()+`"`)
		w.Header().Set("Content-Length", strconv.Itoa(size))
		for part := e.Body; len(part) > 0; part = e.Body {
			if _, err := w.Write(part); err != nil {
				return // the visitor has disconnected
			}
			if size -= len(part); size <= 0 {
				return
			}
			if err := h.nextPart(v, q, &e, size); err != nil {
				h.errors.failed(q.Name(), err)
				panic(http.ErrAbortHandler) // the visitor sees an incomplete download
			}
		}
	}}, nil
}

// nextPart reads the part of a body before its last rest bytes.
func (h *Handler) nextPart(v *visit, q *chanqadmin.Queue, e *chanqadmin.Entry, rest int) error {
	ctx, cancel := context.WithTimeout(v.Request.Context(), h.cfg.Timeout)
	defer cancel()
	next, err := q.GetPart(ctx, e.ID, e.Size-rest, bodyPart)
	if err == nil && len(next.Body) == 0 {
		err = errNoMessage
	}
	*e = next
	return err
}

// lifeOf returns the known events of a message's life, in order.
func lifeOf(e chanqadmin.Entry, v *visit) (life []moment) {
	add := func(what string, at stampOf) {
		if !at.IsZero() {
			life = append(life, moment{What: what, At: at, Coming: at.After(v.now)})
		}
	}
	add("sent", stampOf{e.EnqueuedAt})
	for _, a := range slices.Backward(e.History) {
		life = append(life, moment{What: "attempt failed", At: stampOf{a.Ended}, Attempt: a})
	}
	if e.DueAt.After(e.EnqueuedAt) {
		add("due", stampOf{e.DueAt})
	}
	if e.State == chanqadmin.StateLeased {
		add("lease ends, unless it is extended", stampOf{e.LeaseUntil})
	} else {
		add("last lease ended", stampOf{e.LeaseUntil})
	}
	add("claimed", stampOf{e.HeldSince})
	add("expires", stampOf{e.ExpiresAt})
	switch e.State {
	case chanqadmin.StateDead:
		add("dead-lettered", stampOf{e.EndedAt})
	case chanqadmin.StateDone:
		add("acked", stampOf{e.EndedAt})
	}
	slices.SortStableFunc(life, func(a, b moment) int { return a.At.Compare(b.At.Time) })
	return life
}

// failuresData is the data of the page of failures: of dead messages, and of those that wait for a retry.
type failuresData struct {
	groupsData
	Failing groupsData
	Unread  bool // Failing could not be read
}

// failingFor is for the read of 10,000 messages. The page shows dead messages without it.
const failingFor = 2 * time.Second

type groupsData struct {
	Groups  []group
	Others  int  // groups that are not shown
	More    bool // there may be more groups
	Total   int  // messages of all groups
	AtLeast bool // there may be more messages
	Most    int  // messages of the largest group, for the bars
}

func (h *Handler) failures(v *visit) (*answer, error) {
	name := v.PathValue("queue")
	q, kind, err := h.open(v)
	if err != nil {
		return nil, err
	}
	dead, err := q.Causes(v.ctx)
	if err != nil {
		return nil, err
	}
	deaths, err := q.Deaths(v.ctx)
	if err != nil {
		return nil, err
	}
	data := failuresData{groupsData: h.groups(v, name, dead, deaths)}
	ctx, cancel := context.WithTimeout(v.ctx, failingFor)
	defer cancel()
	if failing, err := q.Failing(ctx); err == nil {
		data.Failing = h.groups(v, name, failing, chanqadmin.Deaths{})
	} else {
		h.errors.failed(name, err)
		data.Unread = true
	}
	cause := ""
	for _, g := range data.Groups {
		if g.Key == v.URL.Query().Get("group") { // the question is about it
			cause = g.LastError
		}
	}
	return &answer{view: &view{Page: "failures", Tab: "failures", Name: "Failures in " + name, Queue: name, Kind: kind, Data: data, Cause: cause}}, nil
}
