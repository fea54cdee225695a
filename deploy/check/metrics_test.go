package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqprom"
)

// queue is one without a consumer, and with a dead message.
type queue struct{}

func (queue) Label() string { return "q" }
func (queue) Stats(context.Context) (chanqadmin.Stats, error) {
	return chanqadmin.Stats{Ready: 1, Dead: 1}, nil
}
func (queue) Consumers(context.Context) ([]chanqadmin.ConsumerInfo, error) { return nil, nil }
func (queue) Name() string                                                 { return "q" }
func (queue) Opened() (chanq.Spec, chanq.ShardMark)                        { return chanq.Spec{}, chanq.ShardMark{} }
func (queue) Record(context.Context, chanqadmin.Stats) error               { return nil }
func (queue) Now(context.Context) (time.Time, error)                       { return time.Now(), nil }
func (queue) Locks(context.Context) ([]chanqadmin.Lock, error)             { return nil, nil }
func (queue) Paused(context.Context) (chanqadmin.Pause, error)             { return chanqadmin.Pause{}, nil }
func (queue) History(context.Context, time.Time, time.Duration) ([]chanqadmin.Sample, error) {
	return nil, nil
}
func (queue) List(context.Context, chanqadmin.Select, chanqadmin.List) (chanqadmin.Page, error) {
	return chanqadmin.Page{Entries: []chanqadmin.Entry{{State: chanqadmin.StateDead}}}, nil
}

// exported returns the labels of each series that chanqprom has after every event, and the values of these labels.
func exported(t *testing.T) map[string]map[string][]string {
	t.Helper()
	m := chanqprom.New(chanqprom.Config{})
	defer m.Watch(queue{})()
	h := m.Hooks()
	h.Sent(chanq.SentEvent{Queue: "q", Took: 1})
	h.Claimed(chanq.ClaimedEvent{Queue: "q", Took: 1})
	h.Settled(chanq.SettledEvent{Queue: "q", Took: 1})
	h.LeaseLost(chanq.LeaseLostEvent{Queue: "q"})
	h.Handled(chanq.HandledEvent{Delivery: chanq.Delivery{Queue: "q"}, Err: errors.New("no")})
	h.Availability(chanq.AvailabilityEvent{Queue: "q", Part: "consumer"})
	h.Isolated(chanq.IsolatedEvent{Queue: "q", Part: "consumer", Items: 1, Change: 1})
	h.Housekeeping(chanq.HousekeepingEvent{Queue: "q", Task: "trim"})
	registry := prometheus.NewRegistry()
	registry.MustRegister(m)
	families, err := registry.Gather()
	require.NoError(t, err)
	all := map[string]map[string][]string{}
	for _, f := range families {
		values := map[string][]string{}
		for _, one := range f.GetMetric() {
			for _, l := range one.GetLabel() {
				values[l.GetName()] = append(values[l.GetName()], l.GetValue())
			}
			for _, b := range one.GetHistogram().GetBucket() {
				values["le"] = append(values["le"], fmt.Sprint(b.GetUpperBound()))
			}
		}
		require.NotEmpty(t, f.GetHelp(), f.GetName())
		if all[f.GetName()] = values; f.GetType() == dto.MetricType_HISTOGRAM {
			delete(all, f.GetName())
			for _, part := range []string{"_bucket", "_count", "_sum"} {
				all[f.GetName()+part] = values
			}
		}
	}
	all["chanq_finding_info"]["kind"] = all["chanq_finding"]["kind"]
	return all
}

// TestTheDashboardUsesExportedMetrics reads each query of each panel.
func TestTheDashboardUsesExportedMetrics(t *testing.T) {
	text, err := os.ReadFile("../grafana/chanq.json")
	require.NoError(t, err)
	var dashboard struct {
		Title  string
		UID    string
		Panels []struct {
			Title, Type string
			Targets     []struct{ Expr string }
			GridPos     struct{ X, Y, W, H int }
		}
	}
	require.NoError(t, json.Unmarshal(text, &dashboard))
	require.NotEmpty(t, dashboard.UID)
	taken := map[[2]int]string{}
	for _, p := range dashboard.Panels {
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				require.Less(t, at[0], 24, p.Title)
				require.Empty(t, taken[at], "%s lies on %s", p.Title, taken[at])
				taken[at] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			// Grafana's variables are filled in before Prometheus sees them.
			expr := strings.NewReplacer("$__rate_interval", "5m", "$queue", ".+").Replace(target.Expr)
			reads(t, p.Title, expr)
		}
	}
	require.Greater(t, len(dashboard.Panels), 8)
	for _, counter := range []string{"sent", "attempted", "delivered", "settled"} {
		require.Contains(t, string(text), "chanq_"+counter+"_messages_total")
	}
}
