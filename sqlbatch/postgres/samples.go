package postgres

import (
	"fmt"
	"strings"
	"time"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
)

// samplesTableText has some thousand rows per queue: see sqlbatch.SampleAges. Each process writes three of them, one
// per step, several times a minute; the others never change. There is no index except that of the key, and room on the
// page: such a write touches no index.
var samplesTableText = `CREATE TABLE IF NOT EXISTS {samples} (
  at        bigint  NOT NULL,
  sent      bigint  NOT NULL,
  acked     bigint  NOT NULL,
  nacked    bigint  NOT NULL,
  died      bigint  NOT NULL,
  delivered bigint  NOT NULL,
  ` + build.Times("times%[1]d bigint NOT NULL DEFAULT 0", 0) + `,
  step      integer NOT NULL,
  ready     integer,
  scheduled integer,
  leased    integer,
  dead      integer,
  oldest    bigint,
  queue     text COLLATE "C" NOT NULL,
  CONSTRAINT {samples pk} PRIMARY KEY (queue, step, at)
) WITH (fillfactor = 70)`

// sampleText writes the rows of all steps in one order, so that two such statements never deadlock. greatest ignores
// NULL.
var sampleText = `INSERT INTO {samples} AS s (queue, step, at, sent, acked, nacked, died, delivered, ready, scheduled, leased, dead, oldest,
  ` + build.Times("times%[1]d", 0) + `)
SELECT {name}, p.step, t.now - t.now % (1000 * p.step), $1::bigint, $2::bigint, $3::bigint, $4::bigint, $5::bigint,
  $6::integer, $7::integer, $8::integer, $9::integer, $10::bigint,
  ` + build.Times("$%[1]d::bigint", 11) + `
FROM (SELECT {now} AS now) AS t CROSS JOIN (VALUES (10), (60), (3600)) AS p (step)
ORDER BY p.step
ON CONFLICT (queue, step, at) DO UPDATE SET
  sent = s.sent + excluded.sent, acked = s.acked + excluded.acked, nacked = s.nacked + excluded.nacked, died = s.died + excluded.died,
  delivered = s.delivered + excluded.delivered,
  ` + build.Times("times%[1]d = s.times%[1]d + excluded.times%[1]d", 0) + `,
  ready = greatest(s.ready, excluded.ready), scheduled = greatest(s.scheduled, excluded.scheduled), leased = greatest(s.leased, excluded.leased),
  dead = greatest(s.dead, excluded.dead), oldest = greatest(s.oldest, excluded.oldest)
RETURNING s.step, (s.ready IS NOT NULL)::integer`

// countedText is the statement of an empty Sample: it writes nothing. A session that may not write leaves counting to others, since the server
// would log each refusal.
const countedText = `SELECT 10 AS step, (EXISTS (
  SELECT FROM {samples} AS s, (SELECT {now} AS now) AS t
  WHERE s.queue = {name} AND s.step = 10 AND s.at = t.now - t.now % 10000 AND s.ready IS NOT NULL)
  OR NOT (has_table_privilege({'samples'}, 'INSERT') AND has_table_privilege({'samples'}, 'UPDATE')) OR current_setting('transaction_read_only') = 'on')::integer AS counted`

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
FROM {samples} WHERE queue = {name} AND step = $2::integer AND at >= $1::bigint ORDER BY at`

func (q *queue) Samples(since int64, step time.Duration) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.samples, Args: []any{since, int64(step / time.Second)}}
}

// thinText skips rows that another process is deleting.
func thinText() string {
	var old []string
	for i, step := range sqlbatch.SampleSteps {
		old = append(old, fmt.Sprintf("step = %d AND at < {now} - %d000", step, sqlbatch.SampleAges[i]))
	}
	return `DELETE FROM {samples}
WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM {samples} WHERE queue = {name} AND (` + strings.Join(old, " OR ") + `)
  LIMIT {rows} FOR UPDATE SKIP LOCKED))`
}

func (q *queue) Thin() sqlbatch.Statement { return sqlbatch.Statement{Text: q.thin} }
