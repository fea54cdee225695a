package chanqweb

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqfindings"
)

// queuesAPage is the most queues of a page of the overview.
const queuesAPage = 100

// overviewData is the data of the overview.
type overviewData struct {
	Needs  needsData
	Queues []queueLine
	Next   string // the name after which the next page begins
	More   bool   // it is not the first page
	Total  int
	Top    int // the most messages in the last hour of a queue of the page, up to which each Spark goes
}

// queueLine is a row of the overview.
type queueLine struct {
	Name    string
	Kind    chanq.Kind
	Stats   figures
	Spark   line
	In, Out string // messages per second in the last complete minute
	Failed  string // attempts per second that failed in it
	Quiet   string // why there are no rates and no recent values in Spark
	hour    []chanqadmin.Sample
	placed
}

// figures are the Stats of a queue, as they were read last.
type figures struct {
	chanqadmin.Stats
	At      time.Time // when they were read; zero: there are none
	Trouble string    // why they were not read again; "": they were
}

func (h *Handler) overview(v *visit) (*answer, error) {
	h.store.shared.ask() // it may say why there are no names
	listed := h.store.names.soon(v)
	if err := listed.none(v.ctx); err != nil {
		h.store.shared.get(v.ctx)
		found := chanqfindings.Of(chanqfindings.Figures{At: v.now, Err: err, Locks: h.store.locked()}, h.cfg.Limits, v.now)
		if len(found) == 0 || found[0].Kind != chanqfindings.Locked {
			return nil, err
		}
		return &answer{view: &view{Page: "overview", Name: "Queues", Data: overviewData{Needs: needsOf(found, 0)}, Live: "live"}}, nil
	}
	names, after := listed.Value, v.URL.Query().Get("after")
	known, _ := h.found(v, names)
	page, others, next := pageOf(names, known, after)
	data := overviewData{Total: len(names), Next: next, More: after != ""}
	for _, name := range page { // all are read simultaneously, the counts first
		h.store.watched(name).stats.ask()
	}
	for _, name := range page {
		w := h.store.watched(name)
		w.stats.get(v.soon)
		w.hour.ask()
	}
	shown := &view{Page: "overview", Name: "Queues", At: listed.At}
	for _, name := range page {
		line, missing := h.queueLine(v, h.store.watched(name))
		if missing && !h.store.lists(v, name) { // it has been dropped since names
			continue
		}
		data.Queues = append(data.Queues, line)
		data.Top = max(data.Top, deepest(line.hour))
		if at := line.Stats.At; line.Stats.Trouble == "" && !stale(at, v.now) && at.Before(shown.At) {
			shown.At = at
		}
	}
	for i := range data.Queues {
		data.Queues[i].Spark = sparkline(data.Queues[i].hour, v.now, data.Top)
	}
	for _, name := range page {
		h.store.watched(name).findings.ask() // after the counts, which must not wait for them
	}
	for _, name := range page {
		h.store.watched(name).findings.get(v.soon)
	}
	h.store.others.ask()
	found, n := h.found(v, slices.Concat(page, others))
	data.Needs = needsOf(found, n)
	slices.SortStableFunc(data.Queues, func(a, b queueLine) int { return cmp.Compare(rank(found, a.Name), rank(found, b.Name)) })
	shown.Data, shown.Live = data, "live"
	if after != "" {
		shown.Live += "?" + v.URL.RawQuery
	}
	return &answer{view: shown}, nil
}

// rank returns the place of a queue among findings, or the place after all.
func rank(found []chanqfindings.Finding, queue string) int {
	if i := slices.IndexFunc(found, func(f chanqfindings.Finding) bool { return f.Queue == queue }); i >= 0 {
		return i
	}
	return len(found)
}

// pageOf returns the queues of the page that begins after a name, and all others. Up to half of the first page are queues with findings, the
// worst first. The others follow by name, and next is the last name of the page if there are more.
func pageOf(names []string, found []chanqfindings.Finding, after string) (page, others []string, next string) {
	var front []string
	for _, f := range found {
		if f.Queue != "" && !slices.Contains(front, f.Queue) && len(front) < queuesAPage/2 {
			front = append(front, f.Queue)
		}
	}
	rest := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(front, name) })
	from, is := slices.BinarySearch(rest, after)
	if is {
		from++
	}
	if after == "" {
		page = front
	} else {
		others = front
	}
	upto := min(from+queuesAPage-len(page), len(rest))
	if upto < len(rest) {
		next = rest[upto-1]
	}
	return slices.Concat(page, rest[from:upto]), slices.Concat(others, rest[:from], rest[upto:]), next
}

// queueLine returns the row of a queue, with the figures that are read soon, or else the last ones. missing: its tables are.
func (h *Handler) queueLine(v *visit, w *watched) (line queueLine, missing bool) {
	stats, hour, at := w.stats.get(v.soon), w.hour.get(v.soon), w.opened.known().Value
	line = queueLine{Name: w.name, Kind: at.kind, placed: at.placed, Stats: h.figuresOf(v, w, stats)}
	switch {
	case errors.Is(hour.Err, chanq.ErrNoSchema) || !hour.At.IsZero() && len(hour.Value) == 0:
		line.Quiet = "no history"
	case hour.At.IsZero():
		line.Quiet = "the history cannot be read"
	default:
		list := hour.Value
		line.hour = list
		line.Quiet = quietSince(list, chanqadmin.StepMinute, v.now)
		if last, ok := lastWhole(list, chanqadmin.StepMinute, v.now); ok {
			line.In, line.Out = perSecond(float64(last.Sent)/chanqadmin.StepMinute.Seconds()), perSecond(float64(last.Acked)/chanqadmin.StepMinute.Seconds())
			line.Failed = perSecond(float64(last.Nacked+last.Died) / chanqadmin.StepMinute.Seconds())
		}
	}
	return line, errors.Is(stats.Err, chanq.ErrNoSchema)
}

// figuresOf returns what is known of the Stats of a queue.
func (h *Handler) figuresOf(v *visit, w *watched, g reading[chanqadmin.Stats]) figures {
	f := figures{Stats: g.Value, At: g.At}
	switch {
	case errors.Is(g.Err, chanq.ErrNoSchema):
		f.Trouble = "The tables of the queue are missing, or older than the web UI: run chanq migrate."
	case g.Err != nil:
		f.Trouble = h.refusalOf(v, w.name, g.Err).text
	case g.At.IsZero():
		f.Trouble = "The database has not answered yet."
	case stale(g.At, v.now): // the read takes long, or a pause follows one that did
		f.Trouble = "The database answers slowly."
	}
	return f
}

// queueData is the data of the page of a queue.
type queueData struct {
	Needs     needsData
	Stats     figures
	Consumers []consumerLine
	More      int // consumers that are not shown
	Span      string
	Spans     []span
	Charts    []chart
	History   string // why there are no charts, or how old they are
}

// consumersShown is the most consumers on the page of a queue.
const consumersShown = 20

func (h *Handler) queue(v *visit) (*answer, error) {
	w, err := h.store.watch(v, v.PathValue("queue"))
	if err != nil {
		return nil, err
	}
	s := spanNamed(v.URL.Query().Get("span"))
	w.details.ask() // all are read simultaneously
	w.spans[s.Name].ask()
	w.findings.ask()
	stats := w.stats.soon(v)
	found := w.details.soon(v)
	if err := cmp.Or(stats.none(v.ctx), found.none(v.ctx)); err != nil {
		return nil, noQueue(err)
	}
	if errors.Is(stats.Err, chanq.ErrNoSchema) {
		return nil, stats.Err
	}
	data := queueData{Stats: h.figuresOf(v, w, stats), Consumers: consumerLines(found.Value.Consumers, found.Value.Now), Spans: spans, Span: s.Name}
	data.Consumers, data.More = upTo(data.Consumers, consumersShown)
	data.Charts, data.History = h.chartsOf(v, w, s, stats.Value.Limit)
	w.findings.get(v.soon)
	data.Needs = needsOf(h.found(v, []string{w.name}))
	return &answer{view: &view{
		Page: "queue", Tab: "queue", Name: w.name, Queue: w.name, Kind: w.opened.known().Value.kind, Data: data, At: older(stats.At, found.At), Live: "q/" + w.name + "/live?span=" + s.Name,
	}}, nil
}

// older returns the earlier of two times.
func older(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// chartsOf returns the charts of a queue, or none and the reason.
func (h *Handler) chartsOf(v *visit, w *watched, s span, limit int) ([]chart, string) {
	found := w.spans[s.Name].soon(v)
	list := found.Value
	switch err := found.none(v.ctx); {
	case errors.Is(found.Err, chanq.ErrNoSchema):
		return nil, "There is no history, because its table is missing: run chanq migrate."
	case err != nil:
		return nil, "The history cannot be read. " + h.refusalOf(v, w.name, err).text
	case len(list) == 0:
		return nil, "There is no history of the last " + s.Name + ": no producer and no consumer was running."
	}
	quiet := quietSince(list, s.step, v.now)
	if quiet != "" {
		quiet = "The charts end before now, " + quiet + ": no producer and no consumer was running."
	}
	return charts(list, v.now, s, limit), quiet
}

// noQueue returns errNoQueue for a name that chanqadmin.Open rejects, and returns other errors
// unchanged.
func noQueue(err error) error {
	var op *chanq.OpError
	if err == nil || errors.As(err, &op) {
		return err
	}
	for _, known := range []error{context.Canceled, context.DeadlineExceeded, chanq.ErrNewerSchema, chanq.ErrShards, chanq.ErrSpec} {
		if errors.Is(err, known) {
			return err
		}
	}
	return errNoQueue
}

// consumerLine is a consumer, and what it holds.
type consumerLine struct {
	chanqadmin.ConsumerInfo
	Silent  bool      // it is not heard
	Holds   string    // messages; "": not known
	Longest time.Time // since when it has held the first of them; zero: none, or not known
}

func consumerLines(list []chanqadmin.ConsumerInfo, now time.Time) (lines []consumerLine) {
	for _, c := range list {
		lines = append(lines, consumerLine{ConsumerInfo: c, Silent: now.Sub(c.Heard) >= chanqadmin.HeardFor})
	}
	return lines
}

// upTo returns the first n of a list, and how many follow.
func upTo[T any](list []T, n int) (first []T, more int) {
	first = list[:min(n, len(list))]
	return first, len(list) - len(first)
}

// consumersData is the data of the page of consumers.
type consumersData struct {
	Consumers  []consumerLine
	More       int            // consumers that are not shown
	Others     []consumerLine // those that are not listed, and have leases
	MoreOthers int            // that are not shown
	Counted    int            // leased messages that were read
	All        bool           // all leased messages were read
	Of         consumerLine   // the consumer whose messages are shown, if the address names one
	Messages   []chanqadmin.Entry
	MoreOf     int // messages that are not shown
}

// consumersListed, othersListed and heldListed bound the page of consumers.
const consumersListed, othersListed, heldListed = 500, 200, 200

// leasesLooked is the most leased messages that are read to count those of each consumer.
const leasesLooked = 1000

func (h *Handler) consumers(v *visit) (*answer, error) {
	name := v.PathValue("queue")
	of, _ := chanq.ParseID(v.URL.Query().Get("of"))
	q, kind, err := h.open(v)
	if err != nil {
		return nil, err
	}
	now, err := q.Now(v.ctx)
	if err != nil {
		return nil, err
	}
	consumers, err := q.Consumers(v.ctx)
	if err != nil {
		return nil, err
	}
	leased, err := q.List(v.ctx, chanqadmin.Select{State: chanqadmin.StateLeased}, chanqadmin.List{Limit: leasesLooked})
	if err != nil {
		return nil, err
	}
	data := consumersData{Consumers: consumerLines(consumers, now), Counted: len(leased.Entries), All: leased.Next == ""}
	held := map[chanq.ID][]chanqadmin.Entry{}
	for _, e := range leased.Entries {
		held[e.Consumer] = append(held[e.Consumer], e)
	}
	for id, list := range held {
		if !slices.ContainsFunc(consumers, func(c chanqadmin.ConsumerInfo) bool { return c.ID == id }) {
			data.Others = append(data.Others, consumerLine{ConsumerInfo: chanqadmin.ConsumerInfo{ID: id, Name: holder(list[0])}, Silent: true})
		}
	}
	for _, lines := range [][]consumerLine{data.Consumers, data.Others} {
		for i := range lines {
			l := &lines[i]
			list := held[l.ID]
			longestFirst(list)
			if l.Holds = grouped(int64(len(list))); !data.All {
				l.Holds += "+"
			}
			if len(list) > 0 {
				l.Longest = list[0].HeldSince
			}
			if l.ID == of && !of.IsZero() {
				data.Of = *l
				data.Messages, data.MoreOf = upTo(list, heldListed)
			}
		}
	}
	for i := range data.Messages {
		h.conceal(v, name, &data.Messages[i])
	}
	slices.SortFunc(data.Others, func(a, b consumerLine) int {
		return cmp.Or(cmp.Compare(len(held[b.ID]), len(held[a.ID])), cmp.Compare(a.ID.String(), b.ID.String()))
	})
	data.Consumers, data.More = upTo(data.Consumers, consumersListed)
	data.Others, data.MoreOthers = upTo(data.Others, othersListed)
	return &answer{view: &view{Page: "consumers", Tab: "consumers", Name: "Consumers of " + name, Queue: name, Kind: kind, Data: data}}, nil
}

// longestFirst sorts leased messages by how long they have been held. On an ordered queue that is not known: they keep their order.
func longestFirst(list []chanqadmin.Entry) {
	slices.SortStableFunc(list, func(a, b chanqadmin.Entry) int { return a.HeldSince.Compare(b.HeldSince) })
}
