package sqlserver

import (
	"database/sql"
	"strings"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
)

// joinText seeks the key of the table of consumers and writes one row of it. Two consumers have two rows, so that two
// Joins never wait for each other. It waits at most LockWait for another transaction that has the row locked.
//
// Only a consumer that joins, not one that renews, deletes consumers that have been gone for a day. It reads the table,
// which has the consumers of one day, and skips the rows that other transactions have locked.
const joinText = settling + `DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @until datetime2(3) = DATEADD(millisecond, @for_ms, DATEADD(day, @for_days, @now));
UPDATE {consumers} WITH (ROWLOCK)
SET queue = {name}, name = @name, host = @host, process = @process, until = CASE WHEN until > @until THEN until ELSE @until END, heard_at = @now
WHERE id = @id;
IF @@ROWCOUNT = 0
BEGIN
    INSERT INTO {consumers} WITH (ROWLOCK) (id, queue, name, host, process, since, until, heard_at)
    VALUES (@id, {name}, @name, @host, @process, @now, @until, @now);
    DELETE m
    FROM {consumers} AS m WITH (UPDLOCK, READPAST, ROWLOCK)
    WHERE m.until < DATEADD(day, -1, @now);
END;
`

func (q *queue) Join(m sqlbatch.Consumer) sqlbatch.Statement {
	days, ms := span(build.Milliseconds(m.For))
	return call(q.join, "@id binary(16), @name nvarchar(200), @host nvarchar(200), @process int, @for_days int, @for_ms int",
		sql.Named("id", m.ID[:]),
		sql.Named("name", consumerText(m.Name)),
		sql.Named("host", consumerText(m.Host)),
		sql.Named("process", int32(m.Process)),
		sql.Named("for_days", days),
		sql.Named("for_ms", ms))
}

// consumerText shortens s to the length of an nvarchar(200).
func consumerText(s string) string { return cutUnits(strings.ToValidUTF8(s, "\uFFFD"), nameUnits) }

const leaveText = settling + `DELETE m
FROM {consumers} AS m WITH (ROWLOCK)
WHERE m.id = @id AND m.queue = {name};
`

func (q *queue) Leave(id [16]byte) sqlbatch.Statement {
	return call(q.leave, "@id binary(16)", sql.Named("id", id[:]))
}

// consumersText reads the whole table. It waits for a row that is being written and does not leave it out.
const consumersText = session + `DECLARE @now datetime2(3) = SYSUTCDATETIME();
SELECT m.id, m.name, m.host, m.process,
       DATEDIFF_BIG(millisecond, '19700101', m.since) AS since,
       DATEDIFF_BIG(millisecond, '19700101', m.until) AS until,
       DATEDIFF_BIG(millisecond, '19700101', CASE WHEN m.heard_at IS NULL THEN @now ELSE m.heard_at END) AS heard_at
FROM {consumers} AS m
WHERE m.queue = {name} AND m.until > @now
ORDER BY m.since, m.id;
`

func (q *queue) Consumers() sqlbatch.Statement { return call(q.consumers, "") }
