package chanqweb

import "github.com/chanq/chanq/chanqadmin"

// conceal takes out of a message what the visitor is not to see: first by Config.Redact, then, for who
// has no right to bodies, the body, the values of headers and what a codec said of them. Whatever
// pages, forms and events show of a message has gone through it.
func (h *Handler) conceal(v *visit, queue string, e *chanqadmin.Entry) {
	h.cfg.Redact(queue, e)
	if v.rights.Bodies {
		return
	}
	e.LastError, e.Body = e.RedactedError(), nil
	for name := range e.Headers {
		e.Headers[name] = ""
	}
}
