package chanqweb

import "github.com/chanq/chanq/chanqadmin"

// conceal removes from a message what the visitor must not see: first by Config.Redact; then, without Rights.Bodies, the body, the values
// of headers, and the text of a codec's error. Pages, forms and events show a message only after conceal.
func (h *Handler) conceal(v *visit, queue string, e *chanqadmin.Entry) {
	h.cfg.Redact(queue, e)
	if _, raw := e.Headers[""]; raw && h.redacts { // headers that are not JSON: Redact cannot look into them
		e.Headers[""] = "not shown"
	}
	for i := range e.History {
		one := chanqadmin.Entry{ID: e.ID, State: e.State, Cause: e.Cause, EndedAt: e.EndedAt, LastError: e.History[i].Error}
		h.cfg.Redact(queue, &one)
		e.History[i].Error = one.LastError
	}
	if v.rights.Bodies {
		return
	}
	e.Redact()
	e.Body = nil
	for name := range e.Headers {
		e.Headers[name] = ""
	}
}
