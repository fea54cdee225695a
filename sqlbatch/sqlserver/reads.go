package sqlserver

import (
	"time"

	"github.com/chanq/chanq/sqlbatch"
)

// Owners of slots claim on SQL Server: the statements of their reads have no text.

func (q *queue) Read(sqlbatch.SlotRead) sqlbatch.Statement    { return sqlbatch.Statement{} }
func (q *queue) ReadKeys(sqlbatch.KeyRead) sqlbatch.Statement { return sqlbatch.Statement{} }
func (q *queue) Contents([16]byte, []sqlbatch.SlotPart, [][16]byte, bool) sqlbatch.Statement {
	return sqlbatch.Statement{}
}
func (q *queue) HeldKeys([]int, []string) sqlbatch.Statement        { return sqlbatch.Statement{} }
func (q *queue) OwnSlots([16]byte, int64, []int) sqlbatch.Statement { return sqlbatch.Statement{} }
func (q *queue) ReturnSlots([16]byte, []sqlbatch.SlotPart) sqlbatch.Statement {
	return sqlbatch.Statement{}
}
func (q *queue) Mark([16]byte, []sqlbatch.ReadItem, int) sqlbatch.Statement {
	return sqlbatch.Statement{}
}
func (q *queue) AckRead([]sqlbatch.ReadItem) sqlbatch.Statement     { return sqlbatch.Statement{} }
func (q *queue) ArchiveRead([]sqlbatch.ReadItem) sqlbatch.Statement { return sqlbatch.Statement{} }
func (q *queue) EndRead([]sqlbatch.ReadEnd) sqlbatch.Statement      { return sqlbatch.Statement{} }
func (q *queue) BuryRead([]sqlbatch.ReadBury) sqlbatch.Statement    { return sqlbatch.Statement{} }
func (q *queue) ExtendRead([16]byte, []sqlbatch.ReadItem, time.Duration) sqlbatch.Statement {
	return sqlbatch.Statement{}
}
func (q *queue) EndAfterRead([16]byte, []sqlbatch.ReadItem, time.Duration) sqlbatch.Statement {
	return sqlbatch.Statement{}
}
func (q *queue) LookRead([]sqlbatch.ReadItem) sqlbatch.Statement { return sqlbatch.Statement{} }
