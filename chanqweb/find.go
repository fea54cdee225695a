package chanqweb

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
)

// findData is the data of the page of a search.
type findData struct {
	Text   string
	List   []chanqadmin.Entry
	Looked string // how many messages were read so far
	Of     string // of how many; "": not known
	Next   string // the token of the next page; "": all were read
	Read   int    // Looked
}

// find searches for messages. It goes to the page of the message whose ID was given.
func (h *Handler) find(v *visit) (*answer, error) {
	name, query := v.PathValue("queue"), v.URL.Query()
	s := chanqadmin.Search{
		Text: query.Get("text"), After: chanqadmin.PageToken(query.Get("from")), Limit: messagesAPage,
		Conceal: func(e *chanqadmin.Entry) { h.conceal(v, name, e) },
	}
	switch {
	case len(s.Text) == 0 || len(s.Text) > chanqadmin.MostSearched:
		return nil, &refusal{http.StatusBadRequest, fmt.Sprintf("The text has %s bytes: it must have from 1 to %s.", grouped(int64(len(s.Text))), grouped(chanqadmin.MostSearched))}
	case !utf8.ValidString(s.Text) || strings.ContainsRune(s.Text, 0):
		return nil, &refusal{http.StatusBadRequest, "The text is not in UTF-8, or has a zero character."}
	}
	q, kind, err := h.open(v)
	if err != nil {
		return nil, err
	}
	page, err := q.Search(v.ctx, s)
	if err != nil {
		if op := (*chanq.OpError)(nil); s.After != "" && !errors.As(err, &op) && v.ctx.Err() == nil {
			return nil, errNoPlace // Search has rejected the token
		}
		return nil, err
	}
	if len(page.Entries) == 1 {
		if id, err := chanq.ParseID(s.Text); err == nil && page.Entries[0].ID == id {
			return &answer{goTo: "q/" + url.PathEscape(name) + "/m/" + id.String()}, nil
		}
	}
	before, _ := strconv.Atoi(query.Get("looked")) // 0 for what is no number
	looked := max(before, 0) + page.Looked
	data := findData{Text: s.Text, List: page.Entries, Looked: grouped(int64(looked))}
	if of := h.store.watched(name).stats.soon(v).Value.Messages(); of >= looked {
		data.Of = chanqadmin.About(of)
	}
	if page.Next != "" {
		data.Next, data.Read = string(page.Next), looked
	}
	return &answer{view: &view{Page: "find", Tab: "messages", Name: "Find in " + name, Queue: name, Kind: kind, Data: data}}, nil
}
