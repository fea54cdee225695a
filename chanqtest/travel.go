package chanqtest

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"
)

// Travel lets d pass for the queues of a database, outside of bubbles: it moves the stored times of all tables of chanq into the past, in
// one transaction. So delays, retries, leases, TTLs, retention and schedules of chanqcron are d closer. Call it while no consumer runs,
// for example between two calls of Drain: a running one polls up to a second later.
//
// db must be a result of DB or Postgres. Travel refuses any other, whose messages might be real ones. The clocks of your program and of the
// database do not change.
func Travel(t testing.TB, db *sql.DB, d time.Duration) {
	t.Helper()
	at := databaseOf(db)
	ctx := context.Background()
	switch {
	case d < 0:
		t.Fatalf("chanqtest: Travel: d is %v: must not be negative", d)
	case at == nil:
		t.Fatalf("chanqtest: Travel: chanqtest has not created %s, so its messages might be real ones: use a result of chanqtest.DB or Postgres",
			nameOf(ctx, db))
	case at.created == "":
		t.Fatalf("chanqtest: Travel: chanqtest has opened %s, but not created it: use a result of chanqtest.DB or Postgres, or the clock of "+
			"that database, for example mssqltest.Stopped", at.name)
	}
	if err := at.travel(ctx, d.Milliseconds()); err != nil {
		t.Fatalf("chanqtest: Travel: %s: %v", at.name, err)
	}
}

// nameOf asks a database for its name.
func nameOf(ctx context.Context, db *sql.DB) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var name string
	for _, query := range []string{"SELECT current_database()", "SELECT DB_NAME()", "SELECT file FROM pragma_database_list WHERE name = 'main'"} {
		if db.QueryRowContext(ctx, query).Scan(&name) == nil {
			return fmt.Sprintf("the database %q", name)
		}
	}
	return fmt.Sprintf("the database of %T", db.Driver())
}

// The tables of chanq, and their columns of times. The time of a queue's creation identifies it, and samples are keyed by theirs.
var columnsOf = map[string]string{
	"sqlite": `SELECT 'main', m.name, c.name FROM sqlite_master AS m JOIN pragma_table_info(m.name) AS c
WHERE m.type = 'table' AND m.name LIKE 'chanq\_%' ESCAPE '\' AND ` + isTime("m.name", "c.name") + ` ORDER BY 1, 2`,
	"postgres": `SELECT c.table_schema, c.table_name, c.column_name FROM information_schema.columns AS c
JOIN information_schema.tables AS t ON t.table_schema = c.table_schema AND t.table_name = c.table_name
WHERE t.table_type = 'BASE TABLE' AND c.table_name LIKE 'chanq\_%' AND c.data_type = 'bigint' AND ` + isTime("c.table_name", "c.column_name") + ` ORDER BY 1, 2`,
}

func isTime(table, column string) string {
	return strings.NewReplacer("t ", table+" ", "c ", column+" ").Replace(
		`(c LIKE '%\_at' ESCAPE '\' OR c LIKE '%\_until' ESCAPE '\' OR c IN ('since', 'until') OR c = 'at' AND t = 'chanq__progress') AND c <> 'created_at'`)
}

func (d *database) travel(ctx context.Context, ms int64) error {
	tx, err := d.own.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	rows, err := tx.QueryContext(ctx, columnsOf[d.created])
	if err != nil {
		return err
	}
	defer rows.Close()
	var tables []string
	sets := map[string][]string{}
	for rows.Next() {
		var schema, name, column string
		if err := rows.Scan(&schema, &name, &column); err != nil {
			return err
		}
		table := quote(schema) + "." + quote(name)
		if sets[table] == nil {
			tables = append(tables, table)
		}
		sets[table] = append(sets[table], fmt.Sprintf("%[1]s = CASE WHEN %[1]s < %[2]d THEN 0 ELSE %[1]s - %[2]d END", quote(column), ms))
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, table := range tables {
		if _, err := tx.ExecContext(ctx, "UPDATE "+table+" SET "+strings.Join(sets[table], ", ")); err != nil {
			return err
		}
	}
	return tx.Commit()
}

func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
