// Package mssqltest is SQL Server in memory, for tests: go-mssqldb and other clients connect to it as to a server.
//
//	db := mssqltest.DB(t)
//
// DB returns a pool on an empty database that lasts as long as the test. Start has options: a clock that your test
// moves, READ_COMMITTED_SNAPSHOT, an address for other clients, faults (Server.Inject), hooks between statements, and
// counts of locks and of work (Server.Locks, Server.QueryStats).
//
// It is made for code whose correctness depends on locks: queues in tables, outboxes, counters, schedulers. It has locks
// on rows, key ranges and tables with their queues, conversions and escalation; row versions; hints; deadlocks and their
// victims; application locks; what an error ends and rolls back; error numbers; and the protocol (TDS 7.4) with
// cancelled requests and broken connections.
//
// It is not a SQL Server. It has no optimizer: a plan is what the hints and the order of the text say. It has no pages,
// so no page locks and no latches; no tempdb and no temporary tables; no disk, so a commit is never lost and nothing is
// slow; one database, and one collation. Of T-SQL it has the part that queues use. Everything else is an error, never a
// wrong answer:
//
//	not supported by mssqltest: MERGE, line 3
//
// Nothing of it was compared with Microsoft's engine. Its rules are those of Microsoft's documentation; package
// behaviours has 38 of them as a contract that you can run on a server of your own.
package mssqltest
