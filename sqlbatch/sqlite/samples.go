package sqlite

import (
	"fmt"
	"strings"
	"time"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
)

// samplesTableText has some thousand rows per queue: see sqlbatch.SampleAges. WITHOUT ROWID: they are found by their
// key, and read in its order.
var samplesTableText = `CREATE TABLE IF NOT EXISTS {samples} (
  queue     TEXT    NOT NULL,
  step      INTEGER NOT NULL,
  at        INTEGER NOT NULL,
  ready     INTEGER,
  scheduled INTEGER,
  leased    INTEGER,
  dead      INTEGER,
  oldest    INTEGER,
  sent      INTEGER NOT NULL,
  acked     INTEGER NOT NULL,
  nacked    INTEGER NOT NULL,
  died      INTEGER NOT NULL,
  delivered INTEGER NOT NULL,
  ` + build.Times("times%[1]d INTEGER NOT NULL DEFAULT 0", 0) + `,
  PRIMARY KEY (queue, step, at)
) WITHOUT ROWID`

// sampleText: WHERE true distinguishes the ON of the conflict from that of a join.
func sampleText() string {
	return `INSERT INTO {samples} (queue, step, at, sent, acked, nacked, died, delivered, ready, scheduled, leased, dead, oldest,
  ` + build.Times("times%[1]d", 0) + `)
SELECT {name}, p.column1, t.now - t.now % (1000 * p.column1), ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10,
  ` + build.Times("?%[1]d", 11) + `
FROM (SELECT {now} AS now) AS t CROSS JOIN (VALUES (10), (60), (3600)) AS p
WHERE true
ON CONFLICT (queue, step, at) DO UPDATE SET
  sent = sent + excluded.sent, acked = acked + excluded.acked, nacked = nacked + excluded.nacked, died = died + excluded.died,
  delivered = delivered + excluded.delivered,
  ` + build.Times("times%[1]d = times%[1]d + excluded.times%[1]d", 0) + `,` + greatestOf("ready", "scheduled", "leased", "dead", "oldest") + `
RETURNING step, ready IS NOT NULL`
}

// greatestOf keeps the greater of the stored and the new value: max with NULL would be NULL.
func greatestOf(columns ...string) string {
	var all strings.Builder
	for i, c := range columns {
		if i > 0 {
			all.WriteByte(',')
		}
		fmt.Fprintf(&all, "\n  %[1]s = coalesce(max(%[1]s, excluded.%[1]s), excluded.%[1]s, %[1]s)", c)
	}
	return all.String()
}

// countedText is the statement of an empty Sample: it writes nothing.
const countedText = `SELECT 10, EXISTS (
  SELECT 1 FROM {samples} AS s, (SELECT {now} AS now) AS t
  WHERE s.queue = {name} AND s.step = 10 AND s.at = t.now - t.now % 10000 AND s.ready IS NOT NULL)`

func (q *queue) Sample(s sqlbatch.Sample) sqlbatch.Statement {
	if s == (sqlbatch.Sample{}) {
		return sqlbatch.Statement{Text: q.counted}
	}
	args := []any{s.Sent, s.Acked, s.Nacked, s.Died, s.Delivered, nil, nil, nil, nil, nil}
	if d := s.Depth; d != nil {
		args[5], args[6], args[7], args[8], args[9] = int64(d.Ready), int64(d.Scheduled), int64(d.Leased), int64(d.Dead), d.Oldest.Milliseconds()
	}
	for _, n := range s.Times {
		args = append(args, n)
	}
	return sqlbatch.Statement{Text: q.sample, Args: args}
}

// samplesText reads a range of the primary key.
var samplesText = `SELECT at, ready, scheduled, leased, dead, oldest, sent, acked, nacked, died, delivered,
  ` + build.Times("times%[1]d", 0) + `
FROM {samples} WHERE queue = {name} AND step = ?2 AND at >= ?1 ORDER BY at`

func (q *queue) Samples(since int64, step time.Duration) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.samples, Args: []any{since, int64(step / time.Second)}}
}

// thinText deletes three ranges of the primary key.
func thinText() string {
	var old []string
	for i, step := range sqlbatch.SampleSteps {
		old = append(old, fmt.Sprintf("step = %d AND at < {now} - %d000", step, sqlbatch.SampleAges[i]))
	}
	return `DELETE FROM {samples} WHERE queue = {name} AND (` + strings.Join(old, " OR ") + `)`
}

func (q *queue) Thin() sqlbatch.Statement { return sqlbatch.Statement{Text: q.thin} }
