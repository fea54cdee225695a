package doctor

import (
	"database/sql"
	"fmt"
	"strings"
)

// needs are the minimum permissions for each kind of use. docs/rights lists all permissions.
var needs = []struct{ to, right, table string }{
	{"send", "SELECT", "queues"}, {"send", "INSERT", ""},
	{"consume", "SELECT", "queues"}, {"consume", "SELECT", ""}, {"consume", "UPDATE", ""}, {"consume", "DELETE", ""},
	{"consume", "INSERT", "dead"}, {"consume", "INSERT", "consumers"}, {"consume", "DELETE", "consumers"},
	{"operate", "UPDATE", "queues"}, {"operate", "INSERT", ""}, {"operate", "DELETE", "dead"},
	{"note the history", "INSERT", "samples"}, {"note the history", "UPDATE", "samples"}, {"note the history", "DELETE", "samples"},
}

// rights reports what this login may do with a queue. A SQLite file has no permissions of its own: a user that can write to it
// may do everything.
func (e *examination) rights(queue string) {
	if e.Dialect.Name() == "sqlite" {
		return
	}
	schema := e.Config.Schema
	if schema == "" {
		schema = e.Dialect.Traits().Schema
	}
	var asked []string
	for i, n := range needs {
		table := "chanq__" + n.table
		switch n.table {
		case "":
			table = "chanq_" + queue
		case "dead":
			table = "chanq_" + queue + "__dead"
		}
		asked = append(asked, e.rightText(i, schema, table, n.right))
	}
	missing := map[string][]string{}
	if err := e.read(strings.Join(asked, "\nUNION ALL\n"), func(rows *sql.Rows) error {
		var i int
		var has sql.NullBool // NULL: the table does not exist
		err := rows.Scan(&i, &has)
		if n := needs[i]; has.Valid && !has.Bool {
			table := n.table
			if table == "" {
				table = "the live table"
			}
			missing[n.to] = append(missing[n.to], n.right+" on "+table)
		}
		return err
	}); err != nil {
		e.unseen("rights", queue, err)
		return
	}
	var may, not []string
	for i, n := range needs {
		switch {
		case i > 0 && needs[i-1].to == n.to: // already reported
		case missing[n.to] == nil:
			may = append(may, n.to)
		default:
			not = append(not, fmt.Sprintf("not %s (%s)", n.to, strings.Join(missing[n.to], ", ")))
		}
	}
	f := Finding{Check: "rights", Queue: queue, Status: OK, Found: "this login may " + strings.Join(append(may, not...), ", ")}
	if len(not) > 0 {
		f.Remedy = "if it needs the rest: docs/rights has the grants of each role"
	}
	if len(may) == 0 {
		f.Status, f.Found = Failure, "this login may "+strings.Join(not, ", ")
	}
	e.add(f)
}

// rightText returns a query for one permission: its number, and whether the login has it.
func (e *examination) rightText(i int, schema, table, right string) string {
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
	if e.Dialect.Name() == "sqlserver" {
		name := "[" + strings.ReplaceAll(schema, "]", "]]") + "].[" + table + "]"
		return fmt.Sprintf("SELECT %d AS number, CONVERT(bit, HAS_PERMS_BY_NAME(N%s, 'OBJECT', '%s')) AS has", i, quote(name), right)
	}
	of := "has_any_column_privilege" // a role may have permissions for some columns only
	if right == "DELETE" {
		of = "has_table_privilege"
	}
	name := `"` + strings.ReplaceAll(schema, `"`, `""`) + `"."` + table + `"`
	return fmt.Sprintf("SELECT %d, %s(to_regclass(%s), '%s')", i, of, quote(name), right)
}
