package chanqweb

import (
	"maps"
	"net/url"
	"strconv"
	"time"
)

// A change ends with a redirect to a page that says what became of it, or first asks about it. Both are in the query of the address.
// Anyone can enter an address, so its query is sealed: it shows something to the visitor who has just sent the form, and to no one else.

// shownFor is how long an address shows a notice or a question.
const shownFor = time.Minute

// sealed returns a query with its time and its seal.
func (h *Handler) sealed(v *visit, query url.Values) url.Values {
	query.Set("at", strconv.FormatInt(v.now.Unix(), 10))
	query.Set("seal", h.sealOf(v, query))
	return query
}

func (h *Handler) sealOf(v *visit, query url.Values) string {
	n, _ := sentNonce(v.Request)
	own := maps.Clone(query)
	for _, of := range []string{"seal", "state", "type"} { // the last two are of the page
		own.Del(of)
	}
	return h.mac("address", n, v.rights.User, own.Encode())
}

// unsealed returns the query of the visit's address if sealed made it for this visitor at most shownFor ago, or nil.
func (h *Handler) unsealed(v *visit) url.Values {
	query := v.URL.Query()
	_, visited := sentNonce(v.Request)
	at, err := strconv.ParseInt(query.Get("at"), 10, 64)
	if !visited || err != nil || v.now.Sub(time.Unix(at, 0)).Abs() > shownFor || !equal(query.Get("seal"), h.sealOf(v, query)) {
		return nil
	}
	return query
}

// question is asked before a change. Its form sends the change again, as the answer.
type question struct {
	Text   string
	To     string // the address of its form, relative to the root
	Fields url.Values
	Yes    string // the text of its button
	Reason bool   // it asks for a reason
	Wrong  string // why the answer before was refused
}

// askReason is the field "why" of an address with a question that asks for a reason.
func askReason(again bool) string {
	if again {
		return "Give a reason, for the other operators. Nothing was changed."
	}
	return ""
}

// questionOf returns the question of an unsealed address, or nil.
func questionOf(query url.Values, to string) *question {
	if !query.Has("ask") {
		return nil
	}
	q := &question{Text: query.Get("ask"), To: to, Yes: query.Get("yes"), Reason: query.Has("why"), Wrong: query.Get("why"), Fields: maps.Clone(query)}
	for _, of := range []string{"ask", "yes", "why", "at", "seal", "state"} {
		q.Fields.Del(of)
	}
	q.Fields.Set("sure", "yes")
	return q
}
