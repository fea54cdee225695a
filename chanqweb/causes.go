package chanqweb

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/chanq/chanq/chanqadmin"
)

// Failures by cause: the groups of dead messages.

// mostGroups is the most groups that the page shows.
const mostGroups = 100

// errorShown is the most bytes of an error on the page of failures.
const errorShown = 1000

// group is a group of dead messages, as the visitor may see it.
type group struct {
	chanqadmin.Group
	Key string // identifies it in forms and addresses
}

func keyOf(g chanqadmin.Group) string { return g.Cause.String() + "-" + g.Fingerprint }

// groupOf returns the selection of a group's messages by its Key.
func groupOf(key string) (s chanqadmin.Select, ok bool) {
	word, fingerprint, _ := strings.Cut(key, "-")
	cause, err := chanqadmin.ParseCause(word)
	return chanqadmin.Group{Cause: cause, Fingerprint: fingerprint}.Select(), err == nil && aFingerprint.MatchString(fingerprint)
}

var aFingerprint = regexp.MustCompile(`^([0-9a-f]{16}|` + chanqadmin.NoFingerprint + `)$`)

// groups returns the groups of a queue, the largest first. more means that there are others.
func (h *Handler) groups(v *visit, q *chanqadmin.Queue) (list []group, more bool, err error) {
	causes, err := q.Causes(v.ctx)
	for _, g := range causes.Groups {
		e := chanqadmin.Entry{ID: g.Example, State: chanqadmin.StateDead, Cause: g.Cause, Fingerprint: g.Fingerprint, EndedAt: g.Last, LastError: g.LastError}
		h.conceal(v, q.Name(), &e)
		g.LastError = clip(e.LastError, errorShown)
		list = append(list, group{g, keyOf(g)})
	}
	slices.SortStableFunc(list, func(a, b group) int { return cmp.Compare(b.Messages, a.Messages) })
	return list, causes.More, err
}
