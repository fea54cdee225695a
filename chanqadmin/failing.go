package chanqadmin

import (
	"cmp"
	"context"
	"slices"

	"github.com/chanq/chanq/sqlbatch"
)

// Failing returns the reasons why messages wait for a retry: the groups of the scheduled messages that have failed, or whose lease has
// expired, by the fingerprint of the error of their last attempt, up to MostGroups. Groups have no Cause. First and Last are the earliest
// and the latest end of an attempt in their History, and Example is the message that failed last. It reads the first scheduled messages,
// up to GroupLimit; if there are others, More is set, also of each group. It costs one round trip per 1,000 messages, on an ordered queue
// two.
func (q *Queue) Failing(ctx context.Context) (Causes, error) {
	byFingerprint := map[string]*Group{}
	next := PageToken("")
	for pages := 0; pages < GroupLimit/MostListed && (pages == 0 || next != ""); pages++ {
		page, err := q.List(ctx, Select{State: StateScheduled}, List{After: next, Limit: MostListed})
		if err != nil {
			return Causes{}, err
		}
		for i := range page.Entries {
			if e := &page.Entries[i]; len(e.History) > 0 {
				fingerprint := fingerprintOf(e)
				g := byFingerprint[fingerprint]
				if g == nil {
					g = &Group{Fingerprint: fingerprint, First: e.History[0].Ended.UTC()}
					byFingerprint[fingerprint] = g
				}
				g.add(e)
			}
		}
		next = page.Next
	}
	all := Causes{Groups: []Group{}, More: next != "" || len(byFingerprint) > MostGroups} // not null in JSON
	for _, g := range byFingerprint {
		g.More = next != ""
		all.Groups = append(all.Groups, *g)
	}
	slices.SortFunc(all.Groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Messages, a.Messages), cmp.Compare(a.Fingerprint, b.Fingerprint))
	})
	all.Groups = all.Groups[:min(len(all.Groups), MostGroups)]
	return all, nil
}

// add adds a message that has failed to its group.
func (g *Group) add(e *Entry) {
	g.Messages++
	if first := e.History[len(e.History)-1].Ended.UTC(); first.Before(g.First) {
		g.First = first
	}
	if last := e.History[0].Ended.UTC(); !last.Before(g.Last) {
		g.Last, g.Example, g.LastError = last, e.ID, e.failure()
	}
}

// failure returns the error of the last attempt of a live message.
func (e *Entry) failure() string {
	if len(e.History) > 0 && e.History[0].Error == sqlbatch.TextExpired { // which does not change LastError
		return sqlbatch.TextExpired
	}
	return e.LastError
}
