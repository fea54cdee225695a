package chanqweb

import (
	"context"
	"errors"
	"slices"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
)

// queuesAPage is the most queues of a page of the overview.
const queuesAPage = 100

// overviewData is the data of the overview.
type overviewData struct {
	Queues []queueLine
	Next   string // the name after which the next page begins
	More   bool   // there are queues before those of this page
	Total  int
}

// queueLine is a row of the overview.
type queueLine struct {
	Name    string
	Kind    chanq.Kind
	Stats   figures
	Spark   line
	In, Out string // messages per second in the last complete minute
	Quiet   string // why there are no rates and no recent values in Spark
	Trouble string // an error, which is shown instead of the figures
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
		if errors.Is(err, chanq.ErrNoSchema) { // it has been dropped since names
			continue
		}
		if err != nil {
			if v.ctx.Err() != nil && len(data.Queues) == 0 {
				return nil, err
			}
			line = queueLine{Name: name, Trouble: h.refusalOf(v, name, err).text}
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
		h.refusalOf(v, name, err)
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

// queueData is the data of the page of a queue.
type queueData struct {
	Stats     figures
	Pause     chanqadmin.Pause
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
	name := v.PathValue("queue")
	stats, kind, err := h.store.stats(v.ctx, name)
	if err != nil {
		return nil, noQueue(err)
	}
	q, _, err := h.store.queue(v.ctx, name)
	if err != nil {
		return nil, noQueue(err)
	}
	consumers, err := q.Consumers(v.ctx)
	if err != nil {
		return nil, err
	}
	data := queueData{Stats: stats, Consumers: consumerLines(consumers), Spans: spans}
	if stats.Paused {
		if data.Pause, err = q.Paused(v.ctx); err != nil {
			return nil, err
		}
	}
	if len(data.Consumers) > consumersShown {
		data.More = len(data.Consumers) - consumersShown
		data.Consumers = data.Consumers[:consumersShown]
	}
	s := spanNamed(v.URL.Query().Get("span"))
	data.Span = s.Name
	data.Charts, data.History = h.chartsOf(v, name, s, stats.Limit)
	return &answer{view: &view{
		Page: "queue", Tab: "queue", Name: name, Queue: name, Kind: kind, Data: data, Live: "q/" + name + "/live?span=" + s.Name,
	}}, nil
}

// chartsOf returns the charts of a queue, or none and the reason.
func (h *Handler) chartsOf(v *visit, queue string, s span, limit int) ([]chart, string) {
	list, err := h.samples(v, queue, v.now.Add(-s.Last), s.step)
	switch {
	case errors.Is(err, chanq.ErrNoSchema):
		return nil, "There is no history, because its table is missing: run chanq migrate."
	case err != nil:
		return nil, "The history cannot be read. " + h.refusalOf(v, queue, err).text
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

// consumerLine is a consumer and how many messages it holds.
type consumerLine struct {
	chanqadmin.ConsumerInfo
	Holds string // "": not known
}

func consumerLines(list []chanqadmin.ConsumerInfo) (lines []consumerLine) {
	for _, c := range list {
		lines = append(lines, consumerLine{ConsumerInfo: c})
	}
	return lines
}

// consumersData is the data of the page of consumers.
type consumersData struct {
	Consumers []consumerLine
	Others    []heldLine // leases of consumers that are not listed
	Counted   int        // leased messages that were read
	All       bool       // all leased messages were read
}

// heldLine is how many messages a consumer holds.
type heldLine struct {
	Holder string
	Count  int
}

// leasesLooked is the most leased messages that are read to count those of each consumer.
const leasesLooked = 1000

func (h *Handler) consumers(v *visit) (*answer, error) {
	name := v.PathValue("queue")
	q, kind, err := h.store.queue(v.ctx, name)
	if err != nil {
		return nil, noQueue(err)
	}
	consumers, err := q.Consumers(v.ctx)
	if err != nil {
		return nil, err
	}
	leased, err := q.List(v.ctx, chanqadmin.Select{State: chanqadmin.StateLeased}, chanqadmin.List{Limit: leasesLooked})
	if err != nil {
		return nil, err
	}
	data := consumersData{Consumers: consumerLines(consumers), Counted: len(leased.Entries), All: leased.Next == ""}
	held := map[chanq.ID]int{}
	names := map[chanq.ID]string{}
	for _, e := range leased.Entries {
		held[e.Consumer]++
		names[e.Consumer] = holder(e)
	}
	for i, c := range data.Consumers {
		data.Consumers[i].Holds = grouped(int64(held[c.ID]))
		if !data.All {
			data.Consumers[i].Holds += "+"
		}
		delete(held, c.ID)
	}
	for id, n := range held {
		data.Others = append(data.Others, heldLine{names[id], n})
	}
	slices.SortFunc(data.Others, func(a, b heldLine) int { return b.Count - a.Count })
	return &answer{view: &view{Page: "consumers", Tab: "consumers", Name: "Consumers of " + name, Queue: name, Kind: kind, Data: data}}, nil
}
