package check

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/stretchr/testify/require"
)

const alertsFile = "../prometheus/alerts.yml"

func alerts(t *testing.T) map[string]rulefmt.Rule {
	t.Helper()
	text, err := os.ReadFile(alertsFile)
	require.NoError(t, err)
	groups, errs := rulefmt.Parse(text, false)
	require.Empty(t, errs)
	all := map[string]rulefmt.Rule{}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			require.NotContains(t, all, r.Alert, "twice")
			all[r.Alert] = r
		}
	}
	return all
}

// metricsOf are the names of the series that an expression reads.
func metricsOf(t *testing.T, expr string) (names []string) {
	t.Helper()
	parsed, err := parser.ParseExpr(expr)
	require.NoError(t, err, expr)
	parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
		if s, ok := n.(*parser.VectorSelector); ok {
			names = append(names, s.Name)
		}
		return nil
	})
	require.NotEmpty(t, names, expr)
	return names
}

func TestAlertsReadWhatChanqTells(t *testing.T) {
	for name, r := range alerts(t) {
		require.Contains(t, []string{"page", "ticket"}, r.Labels["severity"], name)
		require.NotEmpty(t, r.Annotations["summary"], name)
		require.NotEmpty(t, r.Annotations["description"], name)
		for _, metric := range metricsOf(t, r.Expr) {
			if !strings.HasPrefix(metric, "pg_") { // of postgres_exporter
				require.Contains(t, told(t), metric, name)
			}
		}
	}
}

// each says of an alert for which series, five minutes long and a value a minute, it is on, and for which it
// is not.
var each = map[string]struct{ on, off string }{
	"ChanqOldestReady": {
		`chanq_oldest_ready_seconds{queue="q"} 100 200 301 301 301 301`,
		`chanq_oldest_ready_seconds{queue="q"} 301x5
		chanq_paused{queue="q"} 1x5`,
	},
	"ChanqNoMembers": {
		`chanq_messages{queue="q",state="ready"} 7x5
		chanq_members{queue="q"} 0x5`,
		`chanq_messages{queue="q",state="ready"} 7x5
		chanq_members{queue="q",instance="a"} 1x5
		chanq_messages{queue="idle",state="ready"} 0x5
		chanq_members{queue="idle"} 0x5`,
	},
	"ChanqStandsStill": {
		`chanq_messages{queue="q",state="ready"} 7x5
		chanq_members{queue="q"} 1x5
		chanq_delivered_messages_total{queue="q"} 500x5`,
		`chanq_messages{queue="q",state="ready"} 7x5
		chanq_members{queue="q"} 1x5
		chanq_delivered_messages_total{queue="q"} 500+1x5
		chanq_messages{queue="idle",state="ready"} 0 0 0 0 0 7
		chanq_members{queue="idle"} 1x5
		chanq_delivered_messages_total{queue="idle"} 500x5
		chanq_messages{queue="paused",state="ready"} 7x5
		chanq_members{queue="paused"} 1x5
		chanq_paused{queue="paused"} 1x5
		chanq_delivered_messages_total{queue="paused"} 500x5`,
	},
	"ChanqOutage": {`chanq_parts_in_outage{queue="q",part="consumer"} 0 0 1 1 1 1`, `chanq_parts_in_outage{queue="q",part="consumer"} 1 1 0 0 0 0`},
	"ChanqNotSeen": {`chanq_up{queue="q"} 1 1 0 0 0 0`, `chanq_up{queue="q",instance="a"} 0x5
		chanq_up{queue="q",instance="b"} 1x5`},
	"ChanqNothingIsWatched": {`other 1x5`, `chanq_up{queue="q"} 0x5`},
	"ChanqDead":             {`chanq_messages{queue="q",state="dead"} 0 1 1 1 1 1`, `chanq_messages{queue="q",state="dead"} 0x5`},
	"ChanqLeasesLost":       {`chanq_leases_lost_total{queue="q"} 3 3 3 4 4 4`, `chanq_leases_lost_total{queue="q"} 3x5`},
	"ChanqHandlersFail": {
		`chanq_handler_errors_total{queue="q"} 0+30x5
		chanq_delivered_messages_total{queue="q"} 0+100x5`,
		`chanq_handler_errors_total{queue="q"} 0+10x5
		chanq_delivered_messages_total{queue="q"} 0+100x5`,
	},
	"ChanqPaused":              {`chanq_paused{queue="q"} 1x5`, `chanq_paused{queue="q"} 0x5`},
	"ChanqHousekeepingRefused": {`chanq_housekeeping_refused{queue="q",task="vacuum"} 1x5`, `chanq_housekeeping_refused{queue="q",task="vacuum"} 1 1 0 0 0 0`},
	"ChanqStatementsSlow": {
		`chanq_statement_duration_seconds_bucket{queue="q",operation="claim",le="1"} 0+90x5
		chanq_statement_duration_seconds_bucket{queue="q",operation="claim",le="10"} 0+100x5
		chanq_statement_duration_seconds_bucket{queue="q",operation="claim",le="+Inf"} 0+100x5`,
		`chanq_statement_duration_seconds_bucket{queue="q",operation="claim",le="1"} 0+100x5
		chanq_statement_duration_seconds_bucket{queue="q",operation="claim",le="+Inf"} 0+100x5`,
	},
	"ChanqDeadRows": {
		`pg_stat_user_tables_n_dead_tup{relname="chanq_orders"} 100001x5
		pg_stat_user_tables_n_live_tup{relname="chanq_orders"} 5x5`,
		`pg_stat_user_tables_n_dead_tup{relname="chanq_orders"} 100001x5
		pg_stat_user_tables_n_live_tup{relname="chanq_orders"} 90000x5
		pg_stat_user_tables_n_dead_tup{relname="invoices"} 100001x5
		pg_stat_user_tables_n_live_tup{relname="invoices"} 5x5`,
	},
}

func TestEachAlertFiresWhereItShould(t *testing.T) {
	rules := alerts(t)
	require.Len(t, each, len(rules))
	for name, c := range each {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, rules, name)
			require.Len(t, firing(t, c.on, rules[name].Expr), 1, "where it should fire")
			require.Empty(t, firing(t, c.off, rules[name].Expr), "where it should not")
		})
	}
}

// firing are the series of an alert after five minutes.
func firing(t *testing.T, series, expr string) []string {
	t.Helper()
	var load strings.Builder
	load.WriteString("load 1m\n")
	for line := range strings.SplitSeq(series, "\n") {
		fmt.Fprintf(&load, "  %s\n", strings.TrimSpace(line))
	}
	storage := promqltest.LoadedStorage(t, load.String())
	defer storage.Close()
	engine := promqltest.NewTestEngine(t, false, 0, 100_000)
	q, err := engine.NewInstantQuery(context.Background(), storage, nil, expr, time.Unix(0, 0).Add(5*time.Minute))
	require.NoError(t, err)
	defer q.Close()
	vector, err := q.Exec(context.Background()).Vector()
	require.NoError(t, err)
	var found []string
	for _, s := range vector {
		found = append(found, s.Metric.String())
	}
	return found
}
