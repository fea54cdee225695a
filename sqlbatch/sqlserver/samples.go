package sqlserver

import (
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
)

// samplesTableText has some thousand rows per queue: see sqlbatch.SampleAges. Times are Unix milliseconds here, since
// they are rounded and displayed in this unit.
var samplesTableText = `IF OBJECT_ID({'samples'}, N'U') IS NULL
    CREATE TABLE {samples} (
        queue varchar(40) NOT NULL,
        step int NOT NULL,
        at bigint NOT NULL,
        ready int NULL,
        scheduled int NULL,
        leased int NULL,
        dead int NULL,
        oldest bigint NULL,
        sent bigint NOT NULL,
        acked bigint NOT NULL,
        nacked bigint NOT NULL,
        died bigint NOT NULL,
        delivered bigint NOT NULL,
        ` + build.Times("times%[1]d bigint NOT NULL", 0) + `,
        CONSTRAINT {samples pk} PRIMARY KEY CLUSTERED (queue, step, at) WITH (ALLOW_PAGE_LOCKS = OFF)
    );
`

// sampleText creates the missing rows of all steps, and adds to them, in the order of steps: two of these statements
// never deadlock. It is one transaction: a lock timeout in any of its statements leaves nothing counted.
func sampleText() string {
	return settling + `DECLARE @now bigint = DATEDIFF_BIG(millisecond, '19700101', SYSUTCDATETIME());
DECLARE @ten bigint = @now - @now % 10000;
DECLARE @minute bigint = @now - @now % 60000;
DECLARE @hour bigint = @now - @now % 3600000;
~BEGIN TRANSACTION;
INSERT INTO {samples} WITH (ROWLOCK) (queue, step, at, sent, acked, nacked, died, delivered, ` + build.Times("times%[1]d", 0) + `)
SELECT {name}, p.step, p.at, 0, 0, 0, 0, 0` + strings.Repeat(", 0", len(sqlbatch.Times{})) + `
FROM (VALUES (10, @ten), (60, @minute), (3600, @hour)) AS p (step, at)
WHERE NOT EXISTS (
    SELECT 1 FROM {samples} AS h WITH (UPDLOCK, SERIALIZABLE, ROWLOCK)
    WHERE h.queue = {name} AND h.step = p.step AND h.at = p.at);
UPDATE h
SET sent = h.sent + @sent, acked = h.acked + @acked, nacked = h.nacked + @nacked, died = h.died + @died,
    delivered = h.delivered + @delivered,
    ` + build.Times("times%[1]d = h.times%[1]d + @times%[1]d", 0) + `,
    ready = CASE WHEN @ready > h.ready OR h.ready IS NULL THEN @ready ELSE h.ready END,
    scheduled = CASE WHEN @scheduled > h.scheduled OR h.scheduled IS NULL THEN @scheduled ELSE h.scheduled END,
    leased = CASE WHEN @leased > h.leased OR h.leased IS NULL THEN @leased ELSE h.leased END,
    dead = CASE WHEN @dead > h.dead OR h.dead IS NULL THEN @dead ELSE h.dead END,
    oldest = CASE WHEN @oldest > h.oldest OR h.oldest IS NULL THEN @oldest ELSE h.oldest END
FROM (VALUES (10, @ten), (60, @minute), (3600, @hour)) AS p (step, at)
INNER JOIN {samples} AS h WITH (ROWLOCK, FORCESEEK) ON h.queue = {name} AND h.step = p.step AND h.at = p.at
OPTION (LOOP JOIN, FORCE ORDER, KEEPFIXED PLAN);
SELECT h.step, CASE WHEN h.ready IS NULL THEN 0 ELSE 1 END AS counted
FROM {samples} AS h
WHERE h.queue = {name} AND h.step = 10 AND h.at = @ten;
~COMMIT TRANSACTION;
`
}

// countedText is the statement of an empty Sample: it writes nothing. It is a seek of one key.
const countedText = session + `DECLARE @now bigint = DATEDIFF_BIG(millisecond, '19700101', SYSUTCDATETIME());
SELECT 10 AS step, CASE WHEN EXISTS (
    SELECT 1 FROM {samples} AS h
    WHERE h.queue = {name} AND h.step = 10 AND h.at = @now - @now % 10000 AND h.ready IS NOT NULL) THEN 1 ELSE 0 END AS counted;
`

func (q *queue) Sample(s sqlbatch.Sample) sqlbatch.Statement {
	if s == (sqlbatch.Sample{}) {
		return call(q.counted, "")
	}
	var ready, scheduled, leased, dead, oldest sql.NullInt64
	if d := s.Depth; d != nil {
		number := func(n int64) sql.NullInt64 { return sql.NullInt64{Int64: n, Valid: true} }
		ready, scheduled, leased, dead = number(int64(d.Ready)), number(int64(d.Scheduled)), number(int64(d.Leased)), number(int64(d.Dead))
		oldest = number(d.Oldest.Milliseconds())
	}
	args := []any{
		sql.Named("sent", s.Sent), sql.Named("acked", s.Acked), sql.Named("nacked", s.Nacked), sql.Named("died", s.Died),
		sql.Named("delivered", s.Delivered),
		sql.Named("ready", ready), sql.Named("scheduled", scheduled), sql.Named("leased", leased), sql.Named("dead", dead), sql.Named("oldest", oldest),
	}
	for i, n := range s.Times {
		args = append(args, sql.Named("times"+strconv.Itoa(i), n))
	}
	return call(q.sample, "@sent bigint, @acked bigint, @nacked bigint, @died bigint, @delivered bigint, @ready int, @scheduled int, @leased int, @dead int, @oldest bigint, "+build.Times("@times%[1]d bigint", 0), args...)
}

// samplesText reads a range of the key. It waits for the last sample while that is being written, which takes a moment.
var samplesText = session + `SELECT h.at, h.ready, h.scheduled, h.leased, h.dead, h.oldest, h.sent, h.acked, h.nacked, h.died, h.delivered,
    ` + build.Times("h.times%[1]d", 0) + `
FROM {samples} AS h
WHERE h.queue = {name} AND h.step = @step AND h.at >= @since
ORDER BY h.at;
`

func (q *queue) Samples(since int64, step time.Duration) sqlbatch.Statement {
	return call(q.samples, "@since bigint, @step int", sql.Named("since", since), sql.Named("step", int32(step/time.Second)))
}

// thinText deletes three ranges of the key, and skips rows that another process is deleting.
func thinText() string {
	text := settling + `DECLARE @now bigint = DATEDIFF_BIG(millisecond, '19700101', SYSUTCDATETIME());
`
	for i, step := range sqlbatch.SampleSteps {
		text += fmt.Sprintf(`DELETE h
FROM {samples} AS h WITH (READPAST, UPDLOCK, ROWLOCK)
WHERE h.queue = {name} AND h.step = %d AND h.at < @now - CONVERT(bigint, 1000) * %d;
`, step, sqlbatch.SampleAges[i])
	}
	return text
}

func (q *queue) Thin() sqlbatch.Statement { return call(q.thin, "") }
