package chanqweb

import (
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqcron"
	"github.com/chanq/chanq/chanqfindings"
	"github.com/chanq/chanq/chanqjobs"
)

// everyView returns every page, with a text in each place that another program can write.
func everyView(text string, body []byte, now time.Time) []*view {
	e := chanqadmin.Entry{
		State: chanqadmin.StateDead, EnqueuedAt: now, DueAt: now, LeaseUntil: now, EndedAt: now, ExpiresAt: now, Consumer: chanq.ID{1}, LeasedBy: text,
		DedupKey: text, Key: text, Type: text, LastError: text, Size: 1,
	}
	live := e
	live.State = chanqadmin.StateLeased
	as, forms, shown, cut := bodyAs(body, false, "")
	consumers := []consumerLine{{ConsumerInfo: chanqadmin.ConsumerInfo{Name: text, Host: text, Since: now, Until: now}, Holds: "1"}}
	groups := []group{{chanqadmin.Group{Cause: chanq.CauseRejected, Messages: 1, First: now, Last: now, LastError: text}, "rejected-none", [60]int{}, false}}
	views := []*view{
		{Page: "overview", Live: "live", Data: overviewData{Queues: []queueLine{{Name: "mail", Stats: figures{At: now}}, {Name: "old", Stats: figures{At: now.Add(-time.Minute), Trouble: printable(text)}}, {Name: "bad", Stats: figures{Trouble: printable(text)}}}, Next: "mail", More: true, Total: 2}},
		{Page: "queue", Live: "live", Data: queueData{Needs: needsOf([]chanqfindings.Finding{{Queue: "mail", Kind: chanqfindings.Paused, Text: text, Remedy: text}}, 1), Stats: figures{Stats: chanqadmin.Stats{Paused: true}, Trouble: printable(text)}, Consumers: consumers, History: printable(text), Spans: spans, Span: "hour"}},
		{Page: "messages", Data: messagesData{State: e.State, States: states, List: []chanqadmin.Entry{e}, From: "a", Next: "b", Type: printable(text), Typed: true, Keyed: true, Failed: true, Held: true}},
		{Page: "message", Data: messageData{Entry: e, Headers: []headerLine{{printable(text), printable(text)}}, As: as, Forms: forms, Text: shown, Cut: cut, Group: "rejected-none", Batch: "b", Progress: chanqjobs.Progress{At: now, Done: 0.5, Note: text}}},
		{Page: "message", Data: messageData{Entry: live, Live: true}},
		{Page: "failures", Data: failuresData{groupsData{Groups: groups, Total: 1, Most: 1}, groupsData{Groups: groups, Total: 1, Most: 1}, true}},
		{Page: "consumers", Data: consumersData{Consumers: consumers, Others: consumers, More: 1, MoreOthers: 1, Of: consumerLine{ConsumerInfo: consumers[0].ConsumerInfo, Holds: "1", Silent: true}, Messages: []chanqadmin.Entry{live}, MoreOf: 1}},
		{Page: "slots", Data: slotsData{Slots: []chanqadmin.SlotStats{{Owner: text, TopKey: printable(text), TopKeyMessages: 1, Messages: 1}}}},
		{Page: "schedules", Data: schedulesData{List: []chanqcron.Entry{{Name: text, Line: text, Zone: text, Type: text, Pause: chanqcron.Pause{Since: now, By: text, Reason: text}}}, More: 1}},
		{Page: "trouble", Name: "Trouble", Data: troubleData{Text: printable(text), Again: true, Look: true}},
		{Page: "batches", Data: batchesData{List: []chanqjobs.Batch{{Done: text, Queue: "mail", Made: now}}, Most: 1}},
		{Page: "batch", Data: batchData{BatchStatus: chanqjobs.BatchStatus{Batch: chanqjobs.Batch{Done: text, Queue: "mail", Made: now, Ended: now}, Left: 2, Dead: 2}, Jobs: []chanq.ID{{1}}, DeadJobs: []chanq.ID{{2}}}},
		{Page: "failures", Data: failuresData{}, Cause: text, InHand: &progressLine{printable(text), true},
			Ask: &question{Text: printable(text), Yes: printable(text), To: "q/mail/change", Reason: true, Wrong: "x", Fields: url.Values{"do": {"purge"}, "name": {printable(text)}, "back": {"dead"}}}},
	}
	for _, v := range views {
		v.Title, v.Root, v.Token, v.Now, v.Rights = printable(text), "../", "t", now, Rights{User: text, Change: true, Bodies: true}
		if v.Page != "trouble" {
			v.Queue, v.Kind = "mail", chanq.KindOrdered
		}
	}
	return views
}

var (
	anyTag   = regexp.MustCompile(`<[a-zA-Z/!][^>]*>`)
	anyValue = regexp.MustCompile(`"[^"]*"`)
)

// shapesOf returns the tags of pages, without the values of their attributes, and the text of
// scripts, if any.
func shapesOf(t testing.TB, p *pages, views []*view) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, v := range views {
		page, err := p.render(v.Page, "layout", v)
		require.NoError(t, err, v.Page)
		require.True(t, utf8.Valid(page), v.Page)
		require.False(t, strings.ContainsFunc(string(page), concealed), "%s hides something", v.Page)
		for _, tag := range anyTag.FindAll(page, -1) {
			all[string(anyValue.ReplaceAll(tag, []byte(`""`)))] = true
		}
	}
	return all
}

func FuzzEscaping(f *testing.F) {
	p := loadPages()
	now := time.Unix(1_700_000_000, 0)
	known := map[string]bool{}
	for _, body := range []string{"", "{}", "x", "\xff", strings.Repeat("x", bodyShown+1)} {
		for shape := range shapesOf(f, p, everyView("harmless", []byte(body), now)) {
			known[shape] = true
		}
		for shape := range shapesOf(f, p, everyView("", []byte(body), now)) {
			known[shape] = true
		}
	}
	for _, evil := range []string{
		`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' autofocus onfocus=alert(1) x='`, `</pre></title><svg onload=alert(1)>`, `{{.Token}}`,
		`javascript:alert(1)`, "\u202egnp.exe\u2066", "\x1b[31m\x00\r", `{"a":"</script><b>"}`, "\xff\xfe<b>", "`${1}`", "-->", "&lt;b&gt;",
	} {
		f.Add(evil, []byte(evil))
	}
	f.Fuzz(func(t *testing.T, text string, body []byte) {
		for shape := range shapesOf(t, p, everyView(text, body, now)) {
			require.True(t, known[shape], shape)
		}
	})
}
