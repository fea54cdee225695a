package sqlserver

import "github.com/chanq/chanq/sqlbatch"

// Ordered queues are not there on SQL Server yet: no statement makes one, and Version
// tells so, by no slots.

func (q *queue) ClaimSlots(sqlbatch.SlotClaim) sqlbatch.Statement { return sqlbatch.Statement{} }
func (q *queue) Slots([]sqlbatch.SlotPart) sqlbatch.Statement     { return sqlbatch.Statement{} }
func (q *queue) TakeSlots([16]byte, []int) sqlbatch.Statement     { return sqlbatch.Statement{} }
func (q *queue) GiveSlots([16]byte, []sqlbatch.SlotPart) sqlbatch.Statement {
	return sqlbatch.Statement{}
}
func (q *queue) Horizon() sqlbatch.Statement        { return sqlbatch.Statement{} }
func (q *queue) Begun() sqlbatch.Statement          { return sqlbatch.Statement{} }
func (q *queue) Held([]int, int) sqlbatch.Statement { return sqlbatch.Statement{} }
func (q *queue) SlotStats(int) sqlbatch.Statement   { return sqlbatch.Statement{} }
