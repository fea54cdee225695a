package sqlbatch

// The statements about members: who holds leases.

const (
	sqliteJoinSweep = `DELETE FROM {members} WHERE until < {now} - 86400000`
	sqliteJoin      = `INSERT INTO {members} (id, queue, name, host, process, since, until) VALUES (?1, {name}, ?2, ?3, ?4, {now}, {now} + ?5)
ON CONFLICT (id) DO UPDATE SET until = max(until, excluded.until)`
	sqliteLeave   = `DELETE FROM {members} WHERE id = ?1`
	sqliteMembers = `SELECT id, name, host, process, since, until FROM {members} WHERE queue = {name} AND until > {now} ORDER BY since, id`
)

func (q *sqliteQueue) Join(m Member) Statement {
	return Statement{
		Text:  q.join,
		Args:  []any{m.ID[:], m.Name, m.Host, int64(m.Process), milliseconds(m.For)},
		Prior: []Statement{{Text: q.joinSweep}},
	}
}

func (q *sqliteQueue) Leave(id [16]byte) Statement {
	return Statement{Text: q.leave, Args: []any{id[:]}}
}

func (q *sqliteQueue) Members() Statement { return Statement{Text: q.members} }
