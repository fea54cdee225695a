package chanqweb

import (
	"cmp"
	"fmt"
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
	Key     string  // identifies it in forms and addresses
	Minutes [60]int // how many died in each of the last 60
	Most    bool    // there were more than are counted
}

// Hour returns how many died in the last hour, and Strip the bars of its minutes, in SVG of 60 by 10.
func (g group) Hour() (n int) {
	for _, m := range g.Minutes {
		n += m
	}
	return n
}

func (g group) Strip() string {
	var b strings.Builder
	for i, n := range g.Minutes {
		if n > 0 {
			fmt.Fprintf(&b, "M%d 10v-%.1fh.8V10z", i, max(1, 10*float64(n)/float64(slices.Max(g.Minutes[:]))))
		}
	}
	return b.String()
}

func keyOf(g chanqadmin.Group) string { return g.Cause.String() + "-" + g.Fingerprint }

// groupOf returns the selection of a group's messages by its Key.
func groupOf(key string) (s chanqadmin.Select, ok bool) {
	word, fingerprint, _ := strings.Cut(key, "-")
	cause, err := chanqadmin.ParseCause(word)
	return chanqadmin.Group{Cause: cause, Fingerprint: fingerprint}.Select(), err == nil && aFingerprint.MatchString(fingerprint)
}

var aFingerprint = regexp.MustCompile(`^([0-9a-f]{16}|` + chanqadmin.NoFingerprint + `)$`)

// groups returns the groups of a queue, the largest first, of Causes with Deaths, or of Failing.
func (h *Handler) groups(v *visit, queue string, causes chanqadmin.Causes, deaths chanqadmin.Deaths) (data groupsData) {
	var list []group
	for _, g := range causes.Groups {
		e := chanqadmin.Entry{ID: g.Example, State: g.Select().State, Cause: g.Cause, Fingerprint: g.Fingerprint, EndedAt: g.Last, LastError: g.LastError}
		h.conceal(v, queue, &e)
		g.LastError = clip(e.LastError, errorShown)
		list = append(list, group{g, keyOf(g), deaths.Of(g), deaths.More})
		data.Total += g.Messages
		data.Most, data.AtLeast = max(data.Most, g.Messages), data.AtLeast || g.More
	}
	slices.SortStableFunc(list, func(a, b group) int { return cmp.Compare(b.Messages, a.Messages) })
	data.Groups, data.Others = upTo(list, mostGroups)
	data.More, data.AtLeast = causes.More, data.AtLeast || causes.More
	return data
}
