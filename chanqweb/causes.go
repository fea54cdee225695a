package chanqweb

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"math"
	"slices"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
)

// Failures by cause: the errors of dead messages, without what is of one message alone.

// cause is why messages are dead.
type cause struct {
	Key     string // of Text, for forms
	Text    string // without numbers, names and the like
	Sample  string // as one of them has it
	Example chanq.ID
	Count   int
	Latest  time.Time
	Oldest  time.Time
}

const (
	mostDead     = 4_000            // are looked at for a page
	mostCauses   = 100              // are shown
	lookAtCauses = 2 * time.Second  // for a page; what was seen by then is shown
	findCauses   = 30 * time.Second // for a change
	causesAtOnce = 1000
)

func keyOf(cause string) string {
	sum := sha256.Sum256([]byte(cause))
	return hex.EncodeToString(sum[:8])
}

// eachDead calls f with the latest dead messages, as the visitor may see them, some at a time, up to most
// of them and for as long as ctx lasts. It reports whether those were all.
func (h *Handler) eachDead(ctx context.Context, v *visit, q *chanqadmin.Queue, most int, f func([]chanqadmin.Entry) error) (all bool, err error) {
	var from chanqadmin.PageToken
	for looked := 0; looked < most; {
		page, err := q.List(ctx, chanqadmin.List{State: chanqadmin.StateDead, After: from, Limit: causesAtOnce})
		list := page.Entries
		if err != nil {
			if looked > 0 && ctx.Err() != nil {
				return false, nil
			}
			return false, err
		}
		for i := range list {
			h.conceal(v, q.Name(), &list[i])
		}
		if err := f(list); err != nil {
			return false, err
		}
		if page.Next == "" {
			return true, nil
		}
		if ctx.Err() != nil {
			break
		}
		looked, from = looked+len(list), page.Next
	}
	return false, nil
}

// causes are those of the latest dead messages, the most frequent first.
func (h *Handler) causes(v *visit, q *chanqadmin.Queue) (list []*cause, looked int, all bool, err error) {
	ctx, cancel := context.WithTimeout(v.ctx, lookAtCauses)
	defer cancel()
	found := map[string]*cause{}
	all, err = h.eachDead(ctx, v, q, mostDead, func(page []chanqadmin.Entry) error {
		looked += len(page)
		for _, e := range page {
			text := causeOf(e.LastError)
			c := found[text]
			if c == nil {
				c = &cause{Key: keyOf(text), Text: text, Sample: printable(e.LastError), Example: e.ID, Latest: e.EndedAt}
				found[text] = c
				list = append(list, c)
			}
			c.Count++
			c.Oldest = e.EndedAt
		}
		return nil
	})
	slices.SortStableFunc(list, func(a, b *cause) int { return cmp.Compare(b.Count, a.Count) })
	return list, looked, all, err
}

// toCause does something to all dead messages of a cause, for as long as finding them may take. It
// reports how many that were, and whether it came to the end.
func (h *Handler) toCause(ctx context.Context, v *visit, q *chanqadmin.Queue, key string, do func([]chanq.ID) (int, error)) (n int, all bool, err error) {
	find, stop := context.WithTimeout(ctx, findCauses)
	defer stop()
	all, err = h.eachDead(find, v, q, math.MaxInt, func(page []chanqadmin.Entry) error {
		var ids []chanq.ID
		for _, e := range page {
			if keyOf(causeOf(e.LastError)) == key {
				ids = append(ids, e.ID)
			}
		}
		if len(ids) == 0 {
			return nil
		}
		done, err := do(ids)
		n += done
		return err
	})
	return n, all, err
}
