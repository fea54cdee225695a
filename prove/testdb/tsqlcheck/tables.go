package tsqlcheck

import (
	"context"
	"strings"

	"github.com/sqlc-dev/teesql/ast"
	"github.com/sqlc-dev/teesql/parser"
)

// Table is what a statement may name of a table.
type Table struct {
	Columns  []string
	Indexes  []string
	sequence bool
	Checked  bool // by a CHECK, so that it cannot be the target of OUTPUT INTO
}

// systemTables are the views of the schema sys that chanq asks.
var systemTables = map[string]Table{
	"sequences": {Columns: []string{"object_id", "current_value"}},
	"databases": {Columns: []string{"name", "database_id", "delayed_durability"}},
}

// Tables reads CREATE TABLE and CREATE INDEX statements; names are without
// schema and quotes. Each text must pass Check.
func Tables(texts []string) (map[string]Table, error) {
	r := &resolver{tables: map[string]Table{}}
	for _, text := range texts {
		if err := Check(text, Given{Tables: r.tables}); err != nil {
			return nil, err
		}
		script, err := parser.Parse(context.Background(), strings.NewReader(text))
		if err != nil {
			return nil, err
		}
		for _, s := range script.Batches[0].Statements {
			r.define(s)
		}
	}
	return r.tables, nil
}

func (r *resolver) define(s ast.Statement) {
	switch s := s.(type) {
	case *ast.IfStatement:
		r.define(s.ThenStatement)
	case *ast.BeginEndBlockStatement:
		for _, inner := range s.StatementList.Statements {
			r.define(inner)
		}
	case *ast.CreateTableStatement:
		var t Table
		for _, c := range s.Definition.ColumnDefinitions {
			t.Columns = append(t.Columns, c.ColumnIdentifier.Value)
		}
		for _, c := range s.Definition.TableConstraints {
			if key, ok := c.(*ast.UniqueConstraintDefinition); ok {
				t.Indexes = append(t.Indexes, key.ConstraintIdentifier.Value)
			} else {
				t.Checked = true
			}
		}
		r.tables[s.SchemaObjectName.BaseIdentifier.Value] = t
	case *ast.CreateSequenceStatement:
		r.tables[s.Name.BaseIdentifier.Value] = Table{sequence: true}
	case *ast.CreateIndexStatement:
		name := s.OnName.BaseIdentifier.Value
		t := r.tables[name]
		t.Indexes = append(t.Indexes, s.Name.Value)
		r.tables[name] = t
	}
}
