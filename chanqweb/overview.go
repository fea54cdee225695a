package chanqweb

import (
	"context"
	"errors"
	"slices"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
)

// queuesAPage is how many queues an overview has.
const queuesAPage = 100

// overviewData is what the first page shows.
type overviewData struct {
	Queues []queueLine
	Next   string // the name behind which the next page begins
	More   bool   // there are others before
	Total  int
}

// queueLine is one queue of them.
type queueLine struct {
	Name    string
	Kind    chanq.Kind
	Stats   figures
	Spark   line
	In, Out string // messages a second, of the last whole minute
	Quiet   string // why there are no such figures, and none of the last minutes in the line
	Trouble string // instead of the rest
	placed
}

func (h *Handler) overview(v *visit) (*answer, error) {
	names, err := h.store.names(v.ctx)
	if err != nil {
		return nil, err
	}
	data := overviewData{Total: len(names)}
	after := v.URL.Query().Get("after")
	from, found := slices.BinarySearch(names, after)
	if found {
		from++
	}
	data.More = from > 0
	for _, name := range names[from:] {
		if len(data.Queues) == queuesAPage {
			data.Next = data.Queues[len(data.Queues)-1].Name
			break
		}
		line, err := h.queueLine(v, name)
		if errors.Is(err, chanq.ErrNoSchema) { // it was dropped just now
			continue
		}
		if err != nil {
			if v.ctx.Err() != nil && len(data.Queues) == 0 {
				return nil, err
			}
			line = queueLine{Name: name, Trouble: h.told(v, name, err).text}
		}
		data.Queues = append(data.Queues, line)
	}
	live := "live"
	if after != "" {
		live += "?" + v.URL.RawQuery
	}
	return &answer{view: &view{Page: "overview", Name: "Queues", Data: data, Live: live}}, nil
}

func (h *Handler) queueLine(v *visit, name string) (queueLine, error) {
	stats, kind, err := h.store.stats(v.ctx, name)
	if err != nil {
		return queueLine{}, err
	}
	line := queueLine{Name: name, Kind: kind, Stats: stats, placed: h.store.placed(name)}
	list, err := h.lastHour(v, name)
	switch {
	case errors.Is(err, chanq.ErrNoSchema) || err == nil && len(list) == 0:
		line.Quiet = "no history"
	case err != nil:
		h.told(v, name, err)
		line.Quiet = "the history cannot be read"
	default:
		line.Spark = sparkline(list, v.now)
		line.Quiet = quietSince(list, chanqadmin.StepMinute, v.now)
		if last, ok := lastWhole(list, chanqadmin.StepMinute, v.now); ok {
			line.In, line.Out = perSecond(float64(last.Sent)/chanqadmin.StepMinute.Seconds()), perSecond(float64(last.Acked)/chanqadmin.StepMinute.Seconds())
		}
	}
	return line, nil
}

// queueData is what the page of a queue shows.
type queueData struct {
	Stats   figures
	Pause   chanqadmin.Pause
	Members []memberLine
	More    int // members that are not shown
	Span    string
	Spans   []span
	Charts  []chart
	History string // why there are none, or how old they are
}

// membersShown is how many members the page of a queue has.
const membersShown = 20

func (h *Handler) queue(v *visit) (*answer, error) {
	name := v.PathValue("queue")
	stats, kind, err := h.store.stats(v.ctx, name)
	if err != nil {
		return nil, noQueue(err)
	}
	q, _, err := h.store.queue(v.ctx, name)
	if err != nil {
		return nil, noQueue(err)
	}
	members, err := q.Consumers(v.ctx)
	if err != nil {
		return nil, err
	}
	data := queueData{Stats: stats, Members: memberLines(members), Spans: spans}
	if stats.Paused {
		if data.Pause, err = q.Paused(v.ctx); err != nil {
			return nil, err
		}
	}
	if len(data.Members) > membersShown {
		data.More = len(data.Members) - membersShown
		data.Members = data.Members[:membersShown]
	}
	s := spanNamed(v.URL.Query().Get("span"))
	data.Span = s.Name
	data.Charts, data.History = h.chartsOf(v, name, s, stats.Limit)
	return &answer{view: &view{
		Page: "queue", Tab: "queue", Name: name, Queue: name, Kind: kind, Data: data, Live: "q/" + name + "/live?span=" + s.Name,
	}}, nil
}

// chartsOf returns no charts, and why, where there is nothing to draw.
func (h *Handler) chartsOf(v *visit, queue string, s span, limit int) ([]chart, string) {
	list, err := h.samples(v, queue, v.now.Add(-s.Last), s.step)
	switch {
	case errors.Is(err, chanq.ErrNoSchema):
		return nil, "There is no history: its table is not here. Migrate the queue once more to have one."
	case err != nil:
		return nil, "The history cannot be read. " + h.told(v, queue, err).text
	case len(list) == 0:
		return nil, "There is no history of the last " + s.Name + ": no producer and no consumer was there to write one."
	}
	quiet := quietSince(list, s.step, v.now)
	if quiet != "" {
		quiet = "The charts end before now, " + quiet + ": no producer and no consumer was there to go on."
	}
	return charts(list, v.now, s, limit), quiet
}

// noQueue: a name that no queue can have is not there either.
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

// memberLine is a consumer, and what it holds.
type memberLine struct {
	chanqadmin.ConsumerInfo
	Holds string // messages; "" is not known
}

func memberLines(list []chanqadmin.ConsumerInfo) (lines []memberLine) {
	for _, m := range list {
		lines = append(lines, memberLine{ConsumerInfo: m})
	}
	return lines
}

// membersData is what the page of members shows.
type membersData struct {
	Members []memberLine
	Others  []heldLine // leases of who is no member
	Counted int        // leased messages that were looked at
	All     bool       // there are no others
}

// heldLine says how many messages somebody holds.
type heldLine struct {
	Holder string
	Count  int
}

// leasesLooked is how many leased messages are looked at to say who holds them.
const leasesLooked = 1000

func (h *Handler) members(v *visit) (*answer, error) {
	name := v.PathValue("queue")
	q, kind, err := h.store.queue(v.ctx, name)
	if err != nil {
		return nil, noQueue(err)
	}
	members, err := q.Consumers(v.ctx)
	if err != nil {
		return nil, err
	}
	leased, err := q.List(v.ctx, chanqadmin.Select{State: chanqadmin.StateLeased}, chanqadmin.List{Limit: leasesLooked})
	if err != nil {
		return nil, err
	}
	data := membersData{Members: memberLines(members), Counted: len(leased.Entries), All: leased.Next == ""}
	held := map[chanq.ID]int{}
	names := map[chanq.ID]string{}
	for _, e := range leased.Entries {
		held[e.Consumer]++
		names[e.Consumer] = holder(e)
	}
	for i, m := range data.Members {
		data.Members[i].Holds = grouped(int64(held[m.ID]))
		if !data.All {
			data.Members[i].Holds += "+"
		}
		delete(held, m.ID)
	}
	for id, n := range held {
		data.Others = append(data.Others, heldLine{names[id], n})
	}
	slices.SortFunc(data.Others, func(a, b heldLine) int { return b.Count - a.Count })
	return &answer{view: &view{Page: "members", Tab: "members", Name: "Members of " + name, Queue: name, Kind: kind, Data: data}}, nil
}
