package check

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/chanqfindings"
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

func TestAlertsUseExportedMetrics(t *testing.T) {
	for name, r := range alerts(t) {
		require.Contains(t, []string{"page", "ticket"}, r.Labels["severity"], name)
		require.NotEmpty(t, r.Annotations["summary"], name)
		require.NotEmpty(t, r.Annotations["description"], name)
		reads(t, name, r.Expr)
	}
}

// reads checks that an expression reads series that chanqprom has, by labels and values that they have. It leaves out those of
// other exporters.
func reads(t *testing.T, where, expr string) {
	t.Helper()
	all := exported(t)
	parsed, err := parser.ParseExpr(expr)
	require.NoError(t, err, expr)
	parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			if strings.HasPrefix(n.Name, "pg_") || strings.HasPrefix(n.Name, "windows_") {
				return nil
			}
			require.Contains(t, all, n.Name, where)
			for _, m := range n.LabelMatchers {
				if m.Name == "__name__" {
					continue
				}
				require.Contains(t, all[n.Name], m.Name, "%s: a label of %s", where, n.Name)
				fixed := map[string]bool{"state": true, "operation": true, "outcome": true, "part": true, "le": true, "severity": true, "kind": true}[m.Name]
				if fixed && (m.Type == labels.MatchEqual || m.Type == labels.MatchRegexp) {
					require.True(t, slices.ContainsFunc(all[n.Name][m.Name], m.Matches), "%s: %s of %s is never %s", where, m.Name, n.Name, m.Value)
				}
			}
		case *parser.AggregateExpr:
			for _, by := range n.Grouping {
				if by == "job" || n.Without && (by == "instance" || by == "pod") { // labels of the scrape
					continue
				}
				require.True(t, slices.ContainsFunc(metricsOf(t, n.Expr.String()), func(name string) bool { return all[name][by] != nil }), "%s: by %s", where, by)
			}
		}
		return nil
	})
}

// runbooks are what the alerts' links begin with.
const runbooks = "https://github.com/chanq/chanq/blob/main/docs/operate/runbook.md#"

// sections are what a link into the runbook can name.
func sections(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile("../../docs/operate/runbook.md")
	require.NoError(t, err)
	all := map[string]bool{}
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(text), -1) {
		name := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		all[strings.ReplaceAll(name, " ", "-")] = true
	}
	for _, id := range regexp.MustCompile(`<a id="([^"]+)">`).FindAllStringSubmatch(string(text), -1) {
		all[id[1]] = true
	}
	return all
}

// The section of an alert that reports findings of several kinds is that of the kind.
func TestEachAlertHasARunbook(t *testing.T) {
	text, err := os.ReadFile("../../docs/operate/runbook.md")
	require.NoError(t, err)
	inRunbook := sections(t)
	for name, r := range alerts(t) {
		section, found := strings.CutPrefix(r.Annotations["runbook_url"], runbooks)
		require.True(t, found, name)
		if !strings.HasPrefix(section, "{{ ") {
			require.Contains(t, inRunbook, section, name)
		}
		require.Contains(t, string(text), "`"+name+"`", "the document says what it means")
	}
	for _, kind := range chanqfindings.Kinds {
		require.Contains(t, inRunbook, string(kind))
	}
}

// each has for an alert the series, with one value per minute, for which it fires after some minutes, by default
// five, and those for which it does not.
var each = map[string]struct {
	on, off string
	minutes int
}{
	"ChanqFailure": {
		on: `chanq_finding_info{queue="q",kind="stuck",severity="failure"} 1x5
		chanq_finding_info{queue="q",kind="dead",severity="warning"} 1x5`,
		off: `chanq_finding_info{queue="a",kind="stuck",severity="warning"} 1x5
		chanq_finding_info{queue="b",kind="failing",severity="failure"} 1x5
		chanq_finding_info{queue="c",kind="unreachable",severity="failure"} 1x5`,
	},
	"ChanqFailing": {
		on: `chanq_finding_info{queue="q",kind="failing",severity="failure"} 1x5`,
		off: `chanq_finding_info{queue="a",kind="failing",severity="warning"} 1x5
		chanq_finding_info{queue="b",kind="failing",severity="failure"} 1x5
		chanq_finding_info{queue="b",kind="blocked-key",severity="failure"} 1x5`,
	},
	"ChanqDatabase": {
		on: `chanq_finding_info{queue="a",kind="locked",severity="failure"} 1x5
		chanq_finding_info{queue="b",kind="unreachable",severity="failure"} 1x5`,
		off: `chanq_finding_info{queue="a",kind="unknown",severity="warning"} 1x5
		chanq_finding_info{queue="b",kind="stuck",severity="failure"} 1x5`,
	},
	"ChanqWarning": {
		on: `chanq_finding_info{queue="q",kind="stuck",severity="warning"} 1x5`,
		off: `chanq_finding_info{queue="a",kind="dead",severity="warning"} 1x5
		chanq_finding_info{queue="b",kind="failing",severity="warning"} 1x5
		chanq_finding_info{queue="b",kind="no-consumer",severity="failure"} 1x5
		chanq_finding_info{queue="c",kind="late",severity="warning"} 1x5
		chanq_oldest_ready_seconds{queue="c"} 301x5
		chanq_finding_info{queue="d",kind="paused",severity="notice"} 1x5`,
	},
	"ChanqOldestReady": {
		on: `chanq_oldest_ready_seconds{queue="q"} 100 200 301 301 301 301
		chanq_finding_info{queue="q",kind="stuck",severity="warning"} 1x5`,
		off: `chanq_oldest_ready_seconds{queue="a"} 301x5
		chanq_finding_info{queue="a",kind="paused",severity="notice"} 1x5
		chanq_oldest_ready_seconds{queue="b"} 301x5
		chanq_finding_info{queue="b",kind="stuck",severity="failure"} 1x5
		chanq_oldest_ready_seconds{queue="c"} 299x5`,
	},
	"ChanqGhostRows": {
		on:  `windows_mssql_accessmethods_ghost_record_skips{mssql_instance="a"} 0+6600000x15`,
		off: `windows_mssql_accessmethods_ghost_record_skips{mssql_instance="a"} 0+5400000x15`, minutes: 15,
	},
	"ChanqOutage": {
		on: `chanq_parts_in_outage{queue="q",part="consumer"} 0 0 1 1 1 1`,
		off: `chanq_parts_in_outage{queue="q",part="consumer"} 1x5
		chanq_finding_info{queue="other",kind="locked",severity="failure"} 1x5`,
	},
	"ChanqNothingIsWatched": {on: `other 1x5`, off: `chanq_up{queue="q"} 0x5`},
	"ChanqDead": {
		on: `chanq_messages{queue="q",state="dead"} 7x70 8x20`,
		off: `chanq_messages{queue="old",state="dead"} 0 1x90
		chanq_messages{queue="redriven",state="dead"} 9x80 0x10
		chanq_messages{queue="none",state="dead"} 0x90
		chanq_messages{queue="repaired",state="dead"} 7x70 8x10 0x20
		chanq_finding{queue="repaired",kind="dead"} 1x80 0x20
		chanq_messages{queue="failing",state="dead"} 7x70 8x20
		chanq_finding_info{queue="failing",kind="failing",severity="warning"} 1x90`,
		minutes: 90,
	},
	"ChanqLeasesLost": {on: `chanq_leases_lost_total{queue="q"} 3x12 4x3`, off: `chanq_leases_lost_total{queue="q"} 3x15
		chanq_leases_lost_total{queue="locked"} 3x12 4x3
		chanq_finding{queue="locked",kind="locked"} 1x5 0x10`, minutes: 15},
	"ChanqPaused": {on: `chanq_paused{queue="q"} 1x5`, off: `chanq_paused{queue="q"} 0x5
		chanq_paused{queue="locked"} 1x5
		chanq_finding_info{queue="locked",kind="locked",severity="failure"} 1x5`},
	"ChanqHousekeepingRefused": {on: `chanq_housekeeping_refused{queue="q",task="vacuum"} 1x5`, off: `chanq_housekeeping_refused{queue="q",task="vacuum"} 1 1 0 0 0 0`},
	"ChanqStatementsSlow": {
		on: `chanq_statement_duration_seconds_bucket{queue="q",operation="claim",le="1"} 0+90x5
		chanq_statement_duration_seconds_bucket{queue="q",operation="claim",le="10"} 0+100x5
		chanq_statement_duration_seconds_bucket{queue="q",operation="claim",le="+Inf"} 0+100x5`,
		off: `chanq_statement_duration_seconds_bucket{queue="q",operation="claim",le="1"} 0+100x5
		chanq_statement_duration_seconds_bucket{queue="q",operation="claim",le="+Inf"} 0+100x5
		chanq_statement_duration_seconds_bucket{queue="locked",operation="claim",le="1"} 0+90x5
		chanq_statement_duration_seconds_bucket{queue="locked",operation="claim",le="10"} 0+100x5
		chanq_statement_duration_seconds_bucket{queue="locked",operation="claim",le="+Inf"} 0+100x5
		chanq_finding{queue="locked",kind="locked"} 1 0x4`,
	},
	"ChanqDeadRows": {
		on: `pg_stat_user_tables_n_dead_tup{relname="chanq_orders"} 100001x5
		pg_stat_user_tables_n_live_tup{relname="chanq_orders"} 5x5`,
		off: `pg_stat_user_tables_n_dead_tup{relname="chanq_orders"} 100001x5
		pg_stat_user_tables_n_live_tup{relname="chanq_orders"} 90000x5
		pg_stat_user_tables_n_dead_tup{relname="invoices"} 100001x5
		pg_stat_user_tables_n_live_tup{relname="invoices"} 5x5`,
	},
}

func TestEachAlertFiresInItsSituation(t *testing.T) {
	rules := alerts(t)
	require.Len(t, each, len(rules))
	for name, c := range each {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, rules, name)
			minutes := cmp.Or(c.minutes, 5)
			require.Len(t, firing(t, c.on, rules[name].Expr, minutes), 1, "where it should fire")
			require.Empty(t, firing(t, c.off, rules[name].Expr, minutes), "where it should not")
		})
	}
}

// The first lease that a new process loses is seen, though its series begins with it.
func TestTheFirstLossOfAProcessIsReported(t *testing.T) {
	expr := alerts(t)["ChanqLeasesLost"].Expr
	const born = `chanq_leases_lost_total{queue="q",instance="old"} 3x30
		chanq_leases_lost_total{queue="q",instance="new"} _x12 1x20`
	require.Len(t, firing(t, born, expr, 14), 1)
	require.Empty(t, firing(t, born, expr, 30), "it is over")
}

// TestDeadLettersAreReportedWithoutAGrowingCount: the counts of a queue end at 10,000, RetainDead deletes dead messages, and the series of a
// new instance have no past.
func TestDeadLettersAreReportedWithoutAGrowingCount(t *testing.T) {
	expr := alerts(t)["ChanqDead"].Expr
	const died = `chanq_settled_messages_total{queue="q",outcome="dead",instance="a"} `
	for name, c := range map[string]struct {
		series  string
		minutes int
		fires   bool
	}{
		"more than 10,000 are dead": {`chanq_messages{queue="q",state="dead"} 10000x90
			` + died + `12000x80 12001x10`, 85, true},
		"as many are deleted as die": {`chanq_messages{queue="q",state="dead"} 40x90
			` + died + `500+1x90`, 85, true},
		"a new instance of the program that watches": {`chanq_messages{queue="q",state="dead",instance="old"} 7x80
			chanq_messages{queue="q",state="dead",instance="new"} _x81 8x10`, 85, true},
		"a new instance begins with a dead letter": {`chanq_messages{queue="q",state="dead"} 10000x90
			chanq_settled_messages_total{queue="q",outcome="dead",instance="old"} 3x90
			` + died + `_x81 1x10`, 85, true},
		"the new instance has ended": {died + `_x81 1x2`, 110, true},
		"an hour later":              {died + `_x81 1x2`, 150, false},
		"a new instance, and none died": {`chanq_messages{queue="q",state="dead"} 10000x90
			chanq_settled_messages_total{queue="q",outcome="dead",instance="old"} 3x80
			` + died + `_x81 0x10`, 85, false},
		"queues of one name in two databases": {`chanq_messages{queue="q",state="dead",db="a"} 100x90
			chanq_messages{queue="q",state="dead",db="b"} 0x90`, 85, false},
		"a gap of the scrapes": {died + `3x60 _x30 3x90`, 125, false},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.fires, len(firing(t, c.series, expr, c.minutes)) == 1) })
	}
}

// firing are the series of an alert after some minutes.
func firing(t *testing.T, series, expr string, minutes int) []string {
	t.Helper()
	var load strings.Builder
	load.WriteString("load 1m\n")
	for line := range strings.SplitSeq(series, "\n") {
		fmt.Fprintf(&load, "  %s\n", strings.TrimSpace(line))
	}
	storage := promqltest.LoadedStorage(t, load.String())
	defer storage.Close()
	engine := promqltest.NewTestEngine(t, false, 0, 100_000)
	q, err := engine.NewInstantQuery(context.Background(), storage, nil, expr, time.Unix(0, 0).Add(time.Duration(minutes)*time.Minute))
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
