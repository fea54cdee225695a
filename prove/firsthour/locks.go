package main

import (
	"cmp"
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// recordedLocks are the locks that each statement had on the emulator: go test ./prove/firsthour -run Locks -update writes them.
//
//go:embed testdata/locks.txt
var recordedLocks string

// lockTimes are the row locks that a statement has requested, and the waits for them: what the server counts for each index.
const lockTimes = `SELECT COALESCE(SUM(row_lock_count), 0), COALESCE(SUM(row_lock_wait_count), 0) FROM sys.dm_db_index_operational_stats(DB_ID(), OBJECT_ID(N'dbo.chanq_orders'), NULL, NULL)`

// locks is part 3: it runs each statement in a transaction that stays open, and compares the locks that it keeps with those on the emulator,
// by table, index and mode. With optimized locking they are other ones, which nothing here knows: the report only shows them.
func locks(ctx context.Context, h *hour) error {
	recorded, err := readLocks(recordedLocks)
	if err != nil {
		return err
	}
	for _, d := range h.databases {
		found, requests, err := h.locksOf(ctx, d)
		if err != nil {
			h.report.failed(d.suffix+": locks", "no error", err)
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(found)) {
			what := d.suffix + ": " + name
			if d.optimized {
				h.report.note(what, found[name])
			} else {
				h.report.compare(what, recorded[lockKey(d, name)], found[name])
			}
		}
		h.report.attach("Row locks in "+d.suffix, "How many row locks each statement requested, and for how many it waited. A dash: the server does not show it.", requests)
	}
	return nil
}

// lockKey names a statement in the recorded table.
func lockKey(d *database, name string) string {
	return fmt.Sprintf("row versions %s, %s", onOff(d.versions), name)
}

// readLocks reads the recorded table: name, colon, locks.
func readLocks(text string) (map[string]string, error) {
	all := map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, locks, ok := strings.Cut(line, ": ")
		if !ok {
			return nil, fmt.Errorf("the recorded locks have the line %q", line)
		}
		all[name] = locks
	}
	return all, nil
}

// locksOf returns the locks of each statement in one database, and a table of lock requests.
func (h *hour) locksOf(ctx context.Context, d *database) (map[string]string, string, error) {
	if err := d.migrate(ctx); err != nil {
		return nil, "", err
	}
	names, err := namesOf(ctx, d)
	if err != nil {
		return nil, "", err
	}
	list, q := lockedStatements, sqlserver.Dialect.Queue(d.names())
	if d.slots > 0 {
		list = orderedStatements
	}
	found, requests := map[string]string{}, [][]string{{"statement", "requests", "waits"}}
	for _, s := range list {
		before, err := d.prepare(ctx)
		if err != nil {
			return nil, "", fmt.Errorf("before %s: %w", s.name, err)
		}
		var at, after [2]int64
		unread := d.db.QueryRowContext(ctx, lockTimes).Scan(&at[0], &at[1])
		if found[s.name], err = locksDuring(ctx, d.db, names, s.make(q, before)); err != nil {
			return nil, "", fmt.Errorf("%s: %w", s.name, err)
		}
		line := []string{s.name, "-", "-"}
		if err := cmp.Or(unread, d.db.QueryRowContext(ctx, lockTimes).Scan(&after[0], &after[1])); err != nil {
			h.report.skip(d.suffix+": row locks requested by each statement", err)
		} else {
			line = []string{s.name, fmt.Sprint(after[0] - at[0]), fmt.Sprint(after[1] - at[1])}
		}
		requests = append(requests, line)
	}
	return found, columns(requests), nil
}

// stored is what a table has before a statement: four leased messages and four free ones, of which one each has a dedup key, and two that are
// dead. An ordered queue has four messages in four slots of one consumer.
type stored struct {
	leased, free []sqlbatch.Item
	dead         [][16]byte
	slots        []sqlbatch.OwnedSlot
}

// lockedStatement is a statement whose locks are recorded.
type lockedStatement struct {
	name string
	make func(sqlbatch.Queue, stored) sqlbatch.Statement
}

// orderedStatements are those that ordered queues have instead of claims.
var orderedStatements = []lockedStatement{
	{"ordered queue, enqueue 3", func(q sqlbatch.Queue, _ stored) sqlbatch.Statement { return q.Enqueue(orderedRows(3, 8)) }},
	{"ordered queue, take 2 slots", func(q sqlbatch.Queue, _ stored) sqlbatch.Statement { return q.TakeSlots(holder, 2, []int{8, 9}) }},
	{"ordered queue, give 4 slots", func(q sqlbatch.Queue, s stored) sqlbatch.Statement { return q.GiveSlots(holder, s.slots) }},
	{"ordered queue, mark 4", func(q sqlbatch.Queue, s stored) sqlbatch.Statement {
		var items []sqlbatch.MarkItem
		for i, item := range s.leased {
			items = append(items, sqlbatch.MarkItem{Item: item, SlotFence: s.slots[i].Fence})
		}
		return q.MarkOrdered(holder, items)
	}},
	{"ordered queue, ack 4", func(q sqlbatch.Queue, s stored) sqlbatch.Statement { return q.SkipLocked().Ack(s.leased) }},
	{"ordered queue, look at 4", func(q sqlbatch.Queue, s stored) sqlbatch.Statement {
		return q.LookOrdered(holder, s.slots, ids(s.leased))
	}},
}

// lockedStatements are the statements of producers and consumers, and those that operators use with messages.
var lockedStatements = []lockedStatement{
	{"enqueue 3", func(q sqlbatch.Queue, _ stored) sqlbatch.Statement { return q.Enqueue(newRows(3, "")) }},
	{"enqueue 3 with a key", func(q sqlbatch.Queue, _ stored) sqlbatch.Statement { return q.EnqueueNew(newRows(3, "fresh")) }},
	{"claim 3 of 4", func(q sqlbatch.Queue, _ stored) sqlbatch.Statement { return q.Claim(claim(3, false)) }},
	{"claim 3 past readers", func(q sqlbatch.Queue, _ stored) sqlbatch.Statement { return q.Claim(claim(3, true)) }},
	{"ack 4", func(q sqlbatch.Queue, s stored) sqlbatch.Statement { return q.SkipLocked().Ack(s.leased) }},
	{"ack 4 in a transaction", func(q sqlbatch.Queue, s stored) sqlbatch.Statement { return q.InTx().Ack(s.leased) }},
	{"archive 4", func(q sqlbatch.Queue, s stored) sqlbatch.Statement { return q.SkipLocked().Archive(s.leased) }},
	{"nack 4", func(q sqlbatch.Queue, s stored) sqlbatch.Statement { return q.SkipLocked().Nack(nacks(s.leased)) }},
	{"snooze 4", func(q sqlbatch.Queue, s stored) sqlbatch.Statement { return q.SkipLocked().Snooze(nacks(s.leased)) }},
	{"release 4", func(q sqlbatch.Queue, s stored) sqlbatch.Statement {
		var items []sqlbatch.ReleaseItem
		for _, item := range s.leased {
			items = append(items, sqlbatch.ReleaseItem{Item: item})
		}
		return q.SkipLocked().Release(items)
	}},
	{"extend 4", func(q sqlbatch.Queue, s stored) sqlbatch.Statement {
		return q.SkipLocked().Extend(holder, s.leased, time.Hour)
	}},
	{"dead-letter 4", func(q sqlbatch.Queue, s stored) sqlbatch.Statement {
		return q.SkipLocked().DeadLetter(deadLetters(s.leased))
	}},
	{"cancel 2", func(q sqlbatch.Queue, s stored) sqlbatch.Statement { return q.Cancel(ids(s.free[:2])) }},
	{"redrive 2", func(q sqlbatch.Queue, s stored) sqlbatch.Statement { return q.Redrive(0, s.dead, sqlbatch.Window{}) }},
	{"look", func(q sqlbatch.Queue, s stored) sqlbatch.Statement { return q.Look(ids(s.leased)) }},
	{"next due", func(q sqlbatch.Queue, _ stored) sqlbatch.Statement { return q.NextDue(sqlbatch.Heads{}) }},
	{"rescan", func(q sqlbatch.Queue, _ stored) sqlbatch.Statement { return q.Rescan() }},
	{"stats", func(q sqlbatch.Queue, _ stored) sqlbatch.Statement { return q.Stats(100) }},
}

var holder = [16]byte{1}

func newRows(n int, key string) (rows []sqlbatch.Row) {
	for i := range n {
		row := sqlbatch.Row{ID: chanq.NewID(), Body: []byte("body")}
		if key != "" {
			row.Key = fmt.Sprintf("%s %d", key, i)
		}
		rows = append(rows, row)
	}
	return rows
}

// orderedRows are messages in as many slots.
func orderedRows(n, firstSlot int) (rows []sqlbatch.Row) {
	for i := range n {
		rows = append(rows, sqlbatch.Row{ID: chanq.NewID(), OrderKey: fmt.Sprintf("key %d", firstSlot+i), Slot: firstSlot + i, Body: []byte("body")})
	}
	return rows
}

func claim(rows int, pastReaders bool) sqlbatch.ClaimParams {
	return sqlbatch.ClaimParams{Rows: rows, Lease: time.Hour, Consumer: holder, Salt: 1, Inline: sqlbatch.MaxBody, PastReaders: pastReaders}
}

func nacks(items []sqlbatch.Item) (list []sqlbatch.NackItem) {
	for _, item := range items {
		list = append(list, sqlbatch.NackItem{Item: item, Delay: time.Hour, Error: "failed"})
	}
	return list
}

func deadLetters(items []sqlbatch.Item) (list []sqlbatch.DeadLetterItem) {
	for _, item := range items {
		list = append(list, sqlbatch.DeadLetterItem{Item: item, Error: "failed", Cause: sqlbatch.CauseRejected})
	}
	return list
}

func ids(items []sqlbatch.Item) (list [][16]byte) {
	for _, item := range items {
		list = append(list, item.ID)
	}
	return list
}

// prepare replaces all messages by those of stored.
func (d *database) prepare(ctx context.Context) (s stored, err error) {
	for _, table := range []string{"chanq_orders", "chanq_orders__dead", "chanq_orders__done"} {
		if _, err := d.db.ExecContext(ctx, "DELETE FROM dbo."+table); err != nil {
			return s, err
		}
	}
	q := sqlserver.Dialect.Queue(d.names())
	if d.slots > 0 {
		return d.prepareOrdered(ctx, q)
	}
	leased, err := d.lease(ctx, q, append(newRows(1, "dead"), newRows(1, "")...))
	if err != nil {
		return s, err
	}
	if _, err := rowsOf(ctx, d.db, q.SkipLocked().DeadLetter(deadLetters(leased))); err != nil {
		return s, err
	}
	s.dead = ids(leased)
	if s.leased, err = d.lease(ctx, q, append(newRows(1, "leased"), newRows(3, "")...)); err != nil {
		return s, err
	}
	rows := append(newRows(1, "free"), newRows(3, "")...)
	for _, row := range rows {
		s.free = append(s.free, sqlbatch.Item{ID: row.ID})
	}
	_, err = rowsOf(ctx, d.db, q.EnqueueNew(rows))
	return s, err
}

// prepareOrdered stores four messages in four slots, which a consumer takes.
func (d *database) prepareOrdered(ctx context.Context, q sqlbatch.Queue) (s stored, err error) {
	rows := orderedRows(4, 0)
	for _, st := range []sqlbatch.Statement{q.Join(sqlbatch.Consumer{ID: holder, Name: "firsthour", For: time.Hour}), q.Enqueue(rows)} {
		if _, err := rowsOf(ctx, d.db, st); err != nil {
			return s, err
		}
	}
	taken, err := rowsOf(ctx, d.db, q.TakeSlots(holder, 1, []int{0, 1, 2, 3}))
	if err != nil || len(taken) != len(rows) {
		return s, errors.Join(err, fmt.Errorf("%d of %d slots were taken", len(taken), len(rows)))
	}
	s.slots = make([]sqlbatch.OwnedSlot, len(taken))
	for _, row := range taken {
		slot := int(row[0].(int64))
		s.slots[slot] = sqlbatch.OwnedSlot{Slot: slot, Fence: row[1].(int64)}
	}
	for _, row := range rows {
		var item sqlbatch.Item
		err := d.db.QueryRowContext(ctx, "SELECT fence FROM dbo.chanq_orders WHERE id = @p1", row.ID[:]).Scan(&item.Fence)
		if err != nil {
			return s, err
		}
		item.ID = row.ID
		s.leased = append(s.leased, item)
	}
	return s, nil
}

// lease stores messages and claims them.
func (d *database) lease(ctx context.Context, q sqlbatch.Queue, rows []sqlbatch.Row) (items []sqlbatch.Item, err error) {
	if _, err := rowsOf(ctx, d.db, q.EnqueueNew(rows)); err != nil {
		return nil, err
	}
	claimed, err := rowsOf(ctx, d.db, q.Claim(claim(len(rows), false)))
	if err != nil {
		return nil, err
	}
	for _, row := range claimed {
		item := sqlbatch.Item{Fence: row[2].(int64)}
		copy(item.ID[:], row[0].([]byte))
		items = append(items, item)
	}
	if len(items) != len(rows) {
		return nil, fmt.Errorf("a claim returned %d of %d messages", len(items), len(rows))
	}
	return items, nil
}

// runner is a *sql.DB, *sql.Conn or *sql.Tx.
type runner interface {
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
}

// rowsOf runs a statement and returns its rows, of all results.
func rowsOf(ctx context.Context, on runner, st sqlbatch.Statement) (all [][]any, err error) {
	return query(ctx, on, st.Text, st.Args...)
}

func query(ctx context.Context, on runner, text string, args ...any) (all [][]any, err error) {
	rows, err := on.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for {
		columns, err := rows.Columns()
		if err != nil {
			return nil, err
		}
		for rows.Next() {
			values, places := make([]any, len(columns)), make([]any, len(columns))
			for i := range values {
				places[i] = &values[i]
			}
			if err := rows.Scan(places...); err != nil {
				return nil, err
			}
			all = append(all, values)
		}
		if !rows.NextResultSet() {
			return all, rows.Err()
		}
	}
}

// place is an index of a table.
type place struct {
	table string
	index int64
}

// indexes are the names of the indexes of the live table of a plain queue, by their numbers, which follow the order in which the migration
// creates them.
var indexes = map[int64]string{1: "the row", 2: "IX due", 3: "UX dedup"}

func (p place) name(d *database) string {
	name := indexes[p.index]
	if p.table != "chanq_"+queue || name == "" || d.slots > 0 {
		name = fmt.Sprintf("index %d", p.index)
	}
	return p.table + ", " + name
}

// namesOf returns the indexes by the numbers that locks have, and the tables.
func namesOf(ctx context.Context, d *database) (map[int64]string, error) {
	names := map[int64]string{}
	rows, err := query(ctx, d.db, `SELECT o.object_id, o.name, p.hobt_id, p.index_id FROM sys.objects AS o INNER JOIN sys.partitions AS p ON p.object_id = o.object_id WHERE o.type = 'U'`)
	for _, row := range rows {
		table := fmt.Sprint(row[1])
		names[row[0].(int64)] = table
		names[row[2].(int64)] = place{table, row[3].(int64)}.name(d)
	}
	return names, err
}

// locksDuring returns the locks that a session keeps on tables after a statement in an open transaction.
func locksDuring(ctx context.Context, db *sql.DB, names map[int64]string, st sqlbatch.Statement) (_ string, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, tx.Rollback()) }()
	var session int64
	if err := tx.QueryRowContext(ctx, "SELECT CONVERT(int, @@SPID)").Scan(&session); err != nil {
		return "", err
	}
	rows, err := rowsOf(ctx, tx, st)
	if err != nil {
		return "", err
	}
	held, err := query(ctx, db, `SELECT resource_type, resource_associated_entity_id, request_mode FROM sys.dm_tran_locks WHERE request_session_id = @p1 AND request_status = 'GRANT' AND resource_database_id = DB_ID()`, session)
	if err != nil {
		return "", unseen{err}
	}
	counts := map[string]int{}
	for _, lock := range held {
		kind, name := strings.TrimSpace(fmt.Sprint(lock[0])), names[lock[1].(int64)]
		if kind == "XACT" {
			name = "the transaction"
		}
		if name != "" { // otherwise it is of a system table, or of the database
			counts[fmt.Sprintf("%s of %s %s", kind, name, strings.TrimSpace(fmt.Sprint(lock[2])))]++
		}
	}
	list := []string{fmt.Sprintf("%d rows", len(rows))}
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, fmt.Sprintf("%d %s", counts[what], what))
	}
	return strings.Join(list, "; "), nil
}
