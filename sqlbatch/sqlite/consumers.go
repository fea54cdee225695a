package sqlite

import (
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/build"
)

// Statements for consumers, which hold leases.

const (
	joinSweepText = `DELETE FROM {consumers} WHERE until < {now} - 86400000`
	joinText      = `INSERT INTO {consumers} (id, queue, name, host, process, since, until, heard_at) VALUES (?1, {name}, ?2, ?3, ?4, {now}, {now} + ?5, {now})
ON CONFLICT (id) DO UPDATE SET until = max(until, excluded.until), heard_at = excluded.heard_at`
	leaveText     = `DELETE FROM {consumers} WHERE id = ?1 AND queue = {name}`
	consumersText = `SELECT id, name, host, process, since, until, coalesce(heard_at, {now}) FROM {consumers} WHERE queue = {name} AND until > {now} ORDER BY since, id`
)

func (q *queue) Join(m sqlbatch.Consumer) sqlbatch.Statement {
	return sqlbatch.Statement{
		Text:  q.join,
		Args:  []any{m.ID[:], m.Name, m.Host, int64(m.Process), build.Milliseconds(m.For)},
		Prior: []sqlbatch.Statement{{Text: q.joinSweep}},
	}
}

func (q *queue) Leave(id [16]byte) sqlbatch.Statement {
	return sqlbatch.Statement{Text: q.leave, Args: []any{id[:]}}
}

func (q *queue) Consumers() sqlbatch.Statement { return sqlbatch.Statement{Text: q.consumers} }
