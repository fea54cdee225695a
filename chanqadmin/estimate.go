package chanqadmin

import (
	"context"
	"database/sql"
	"math"
	"strconv"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/sqlbatch"
)

// Estimates are how many messages the tables of a queue have, by the statistics of the database. 0: not known.
type Estimates struct {
	Live int `json:"live,omitempty"` // ready, scheduled and leased
	Dead int `json:"dead,omitempty"`
	Done int `json:"done,omitempty"`
}

// The statements read the catalog only. PostgreSQL counts what transactions add and remove; after a crash it begins again, and then has only
// what the last vacuum found.
const (
	estimatePostgres = `SELECT CASE c.relname WHEN $2::text THEN 0 WHEN $2::text || '__dead' THEN 1 ELSE 2 END,
  CASE WHEN pg_stat_get_live_tuples(c.oid) > 0 THEN pg_stat_get_live_tuples(c.oid) ELSE greatest(c.reltuples, 0)::bigint END
FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = $1::text AND c.relname IN ($2::text, $2::text || '__dead', $2::text || '__done')`

	estimateSQLServer = `SELECT CASE WHEN o.name = @live THEN 0 WHEN o.name = @live + N'__dead' THEN 1 ELSE 2 END AS place, p.rows
FROM sys.objects AS o WITH (NOLOCK) INNER JOIN sys.partitions AS p WITH (NOLOCK) ON p.object_id = o.object_id
WHERE o.schema_id = SCHEMA_ID(@schema) AND o.name IN (@live, @live + N'__dead', @live + N'__done') AND p.index_id IN (0, 1)`
)

// estimates returns what the database knows. SQLite knows nothing: the difference of two rowids says little about the rows between them.
func (q *Queue) estimates(ctx context.Context) (e Estimates, err error) {
	schema, live := q.cfg.Schema, "chanq_"+q.Name()
	if schema == "" {
		schema = q.dialect.Traits().Schema
	}
	st := sqlbatch.Statement{Text: estimatePostgres, Args: []any{schema, live}}
	switch q.dialect.Name() {
	case string(chanq.DialectSQLite):
		return e, nil
	case string(chanq.DialectSQLServer):
		st = sqlbatch.Statement{Text: estimateSQLServer, Args: []any{sql.Named("schema", schema), sql.Named("live", live)}}
	}
	err = q.repeat(ctx, st, func() { e = Estimates{} }, func(rows *sql.Rows) error {
		var table, n int
		err := rows.Scan(&table, &n)
		*[]*int{&e.Live, &e.Dead, &e.Done}[table] += n
		return err
	})
	return e, err
}

// Estimate returns about how many messages of a state there are: the count below Limit, which is exact, or what the database estimates. It is
// 0 if more than Limit are not known to the database, or if it does not know how they are divided among the states of its table.
func (s Stats) Estimate(state State) (messages int) {
	var counted int
	switch state {
	case StateReady:
		counted, messages = s.Ready, s.About.Live-s.Scheduled-s.Leased
	case StateScheduled:
		counted, messages = s.Scheduled, s.About.Live-s.Ready-s.Leased
	case StateLeased:
		counted, messages = s.Leased, s.About.Live-s.Ready-s.Scheduled
	case StateDead:
		counted, messages = s.Dead, s.About.Dead
	case StateDone:
		counted, messages = s.Done, s.About.Done
	}
	full := 0 // of the states of the live table
	for _, n := range []int{s.Ready, s.Scheduled, s.Leased} {
		if n >= s.Limit {
			full++
		}
	}
	switch {
	case counted < s.Limit:
		return counted
	case messages <= s.Limit || state.live() && full > 1:
		return 0
	}
	return messages
}

// Messages returns about how many messages there are in all states, or 0 if that is not known.
func (s Stats) Messages() int {
	live, dead, done := s.Ready+s.Scheduled+s.Leased, s.Estimate(StateDead), s.Estimate(StateDone)
	if max(s.Ready, s.Scheduled, s.Leased) >= s.Limit {
		live = s.About.Live
	}
	if live < s.Ready || dead < s.Dead || done < s.Done { // not known
		return 0
	}
	return live + dead + done
}

// About formats an estimate with two digits, for example as "about 2.9 M".
func About(n int) string {
	v, unit := float64(n), ""
	for _, next := range []string{" k", " M", " G"} {
		if v < 995 { // else it is rounded to 1000
			break
		}
		v, unit = v/1000, next
	}
	exact := strconv.FormatFloat(v, 'g', 2, 64)
	if v >= 100 {
		exact = strconv.Itoa(int(math.Round(v/10)) * 10)
	}
	return "about " + exact + unit
}
