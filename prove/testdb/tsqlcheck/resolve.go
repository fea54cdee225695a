package tsqlcheck

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/sqlc-dev/teesql/ast"
	"github.com/sqlc-dev/teesql/parser"
)

// resolver looks every name up.
type resolver struct {
	tables    map[string]Table
	variables map[string]bool
	used      map[string]bool
	ctes      map[string][]string
	rows      map[string][]string // columns of the table variables
}

type source struct {
	name    string
	columns []string
}

type scope struct {
	sources []source
	outer   *scope
}

func resolve(statements []ast.Statement, given Given) error {
	tables := maps.Clone(given.Tables)
	if tables == nil {
		tables = map[string]Table{}
	}
	r := &resolver{tables: tables, variables: map[string]bool{}, used: map[string]bool{}, rows: map[string][]string{}}
	parameters := r.parameters(given.Parameters)
	for _, s := range statements {
		r.statement(s)
	}
	for _, p := range parameters {
		if !r.used[p] {
			fail("parameter %s is declared and not used", p)
		}
	}
	return nil
}

// parameters declares what a declaration string does, by way of DECLARE.
func (r *resolver) parameters(declaration string) []string {
	if declaration == "" {
		return nil
	}
	script, err := parser.Parse(context.Background(), strings.NewReader("DECLARE "+declaration+";"))
	if err != nil {
		fail("declaration: %v", err)
	}
	var names []string
	for _, d := range script.Batches[0].Statements[0].(*ast.DeclareVariableStatement).Declarations {
		(&writer{}).dataType(d.DataType)
		names = append(names, d.VariableName.Value)
		r.variables[d.VariableName.Value] = true
	}
	return names
}

func (r *resolver) statement(s ast.Statement) {
	r.ctes = map[string][]string{}
	none := &scope{}
	switch s := s.(type) {
	case *ast.DeclareVariableStatement:
		for _, d := range s.Declarations {
			r.expression(d.Value, none)
			if r.variables[d.VariableName.Value] {
				fail("%s is declared twice", d.VariableName.Value)
			}
			r.variables[d.VariableName.Value] = true
		}
	case *ast.DeclareTableVariableStatement:
		var columns []string
		for _, c := range s.Body.Definition.ColumnDefinitions {
			columns = append(columns, c.ColumnIdentifier.Value)
		}
		in := &scope{sources: []source{{columns: columns}}}
		for _, c := range s.Body.Definition.TableConstraints {
			for _, k := range c.(*ast.UniqueConstraintDefinition).Columns {
				r.expression(k.Column, in)
			}
		}
		r.rows[s.Body.VariableName.Value] = columns
	case *ast.SetVariableStatement, *ast.SetRowCountStatement, *ast.SetCommandStatement:
		r.expression(s, none)
	case *ast.IfStatement:
		r.expression(s.Predicate, none)
		r.statement(s.ThenStatement)
	case *ast.WhileStatement:
		r.expression(s.Predicate, none)
		r.statement(s.Statement)
	case *ast.WaitForStatement:
		r.expression(s.Parameter, none)
	case *ast.BeginEndBlockStatement:
		for _, inner := range s.StatementList.Statements {
			r.statement(inner)
		}
	case *ast.TryCatchStatement:
		for _, inner := range slices.Concat(s.TryStatements.Statements, s.CatchStatements.Statements) {
			r.statement(inner)
		}
	case *ast.ExecuteStatement:
		r.expression(s.ExecuteSpecification.Variable, none)
		for _, a := range s.ExecuteSpecification.ExecutableEntity.(*ast.ExecutableProcedureReference).Parameters {
			r.expression(a.ParameterValue, none)
		}
	case *ast.ThrowStatement:
		r.expression(s, none)
	case *ast.SelectStatement:
		r.with(s.WithCtesAndXmlNamespaces)
		r.query(s.QueryExpression, nil)
	case *ast.InsertStatement:
		r.insert(s.InsertSpecification)
	case *ast.UpdateStatement:
		u := s.UpdateSpecification
		r.with(s.WithCtesAndXmlNamespaces)
		in, target := r.change(u.Target, u.FromClause, u.OutputClause, u.OutputIntoClause)
		r.expression(u.TopRowFilter, none)
		for _, c := range u.SetClauses {
			a := c.(*ast.AssignmentSetClause)
			if name := last(a.Column); !slices.Contains(target, name) {
				fail("SET of unknown column %s", name)
			}
			r.expression(a.NewValue, in)
		}
		r.expression(u.WhereClause, in)
	case *ast.DeleteStatement:
		d := s.DeleteSpecification
		r.with(s.WithCtesAndXmlNamespaces)
		in, _ := r.change(d.Target, d.FromClause, d.OutputClause, d.OutputIntoClause)
		r.expression(d.TopRowFilter, none)
		r.expression(d.WhereClause, in)
	case *ast.DropTableStatement, *ast.DropSequenceStatement, *ast.DropViewStatement, *ast.DropProcedureStatement:
	case *ast.CreateSequenceStatement:
		r.define(s)
	case *ast.CreateTableStatement:
		var columns []string
		for _, c := range s.Definition.ColumnDefinitions {
			name := c.ColumnIdentifier.Value
			if slices.Contains(columns, name) {
				fail("column %s twice", name)
			}
			columns = append(columns, name)
		}
		in := &scope{sources: []source{{columns: columns}}}
		for _, c := range s.Definition.TableConstraints {
			switch c := c.(type) {
			case *ast.UniqueConstraintDefinition:
				for _, k := range c.Columns {
					r.expression(k.Column, in)
				}
			case *ast.CheckConstraintDefinition:
				r.expression(c.CheckCondition, in)
			}
		}
		r.define(s)
	case *ast.CreateIndexStatement:
		in := &scope{sources: []source{{columns: r.columns(s.OnName)}}}
		for _, k := range s.Columns {
			r.expression(k.Column, in)
		}
		for _, c := range s.IncludeColumns {
			r.expression(c, in)
		}
		r.expression(s.FilterPredicate, in)
		r.define(s)
	}
}

func (r *resolver) with(c *ast.WithCtesAndXmlNamespaces) {
	if c == nil {
		return
	}
	for _, e := range c.CommonTableExpressions {
		r.ctes[e.ExpressionName.Value] = r.query(e.QueryExpression, nil)
	}
}

func (r *resolver) insert(s *ast.InsertSpecification) {
	columns := r.target(s.Target)
	r.sameLength(s.Columns, columns, len(s.Columns))
	r.outputs(&scope{sources: []source{{"inserted", columns}}}, s.OutputClause, s.OutputIntoClause)
	switch source := s.InsertSource.(type) {
	case *ast.SelectInsertSource:
		r.sameLength(s.Columns, columns, len(r.query(source.Select, nil)))
	case *ast.ValuesInsertSource:
		for _, row := range source.RowValues {
			r.sameLength(s.Columns, columns, len(row.ColumnValues))
			r.expression(row, &scope{})
		}
	}
}

// change resolves the parts that UPDATE and DELETE share and returns what their
// expressions see and what their target has.
func (r *resolver) change(t ast.TableReference, from *ast.FromClause, o *ast.OutputClause, into *ast.OutputIntoClause) (*scope, []string) {
	in := &scope{}
	named := t.(*ast.NamedTableReference)
	var target []string
	if from == nil {
		in.sources = []source{r.named(named)}
		target = in.sources[0].columns
	} else {
		r.from(from.TableReferences[0], in)
		i := slices.IndexFunc(in.sources, func(s source) bool { return s.name == named.SchemaObject.BaseIdentifier.Value })
		if i < 0 || len(named.SchemaObject.Identifiers) != 1 {
			fail("target %s is not in FROM", named.SchemaObject.BaseIdentifier.Value)
		}
		target = in.sources[i].columns
	}
	out := &scope{sources: slices.Clone(in.sources)}
	for i := range out.sources {
		if out.sources[i].name == named.SchemaObject.BaseIdentifier.Value {
			out.sources[i] = source{"inserted", target}
		}
	}
	out.sources = append(out.sources, source{"deleted", target})
	r.outputs(out, o, into)
	return in, target
}

func (r *resolver) outputs(in *scope, o *ast.OutputClause, into *ast.OutputIntoClause) {
	if o != nil {
		r.expression(o, in)
	}
	if into != nil {
		r.expression(into.SelectColumns, in)
		name := into.IntoTable.(*ast.NamedTableReference).SchemaObject
		columns := r.columns(name)
		if r.tables[name.BaseIdentifier.Value].Checked {
			fail("OUTPUT INTO %s, which has a CHECK: error 333", name.BaseIdentifier.Value)
		}
		r.sameLength(into.IntoTableColumns, columns, len(into.SelectColumns))
	}
}

// sameLength checks a list of a table's columns and the count of its values.
func (r *resolver) sameLength(list []*ast.ColumnReferenceExpression, columns []string, values int) {
	if len(list) != values {
		fail("%d columns and %d values", len(list), values)
	}
	var seen []string
	for _, c := range list {
		name := last(c)
		if !slices.Contains(columns, name) || slices.Contains(seen, name) {
			fail("column %s is unknown or twice", name)
		}
		seen = append(seen, name)
	}
}

// query resolves a query and returns the names of its columns.
func (r *resolver) query(q ast.QueryExpression, outer *scope) []string {
	switch q := q.(type) {
	case *ast.BinaryQueryExpression:
		a, b := r.query(q.FirstQueryExpression, outer), r.query(q.SecondQueryExpression, outer)
		if len(a) != len(b) {
			fail("UNION of %d and %d columns", len(a), len(b))
		}
		return a
	case *ast.QuerySpecification:
		in := &scope{outer: outer}
		if q.FromClause != nil {
			r.from(q.FromClause.TableReferences[0], in)
		}
		r.expression(q.TopRowFilter, in)
		r.expression(q.WhereClause, in)
		r.expression(q.OrderByClause, in)
		var names []string
		for _, e := range q.SelectElements {
			s := e.(*ast.SelectScalarExpression)
			r.expression(s.Expression, in)
			name := ""
			if s.ColumnName != nil {
				name = s.ColumnName.Identifier.Value
			} else if c, ok := s.Expression.(*ast.ColumnReferenceExpression); ok {
				name = last(c)
			}
			names = append(names, name)
		}
		return names
	}
	fail("query %T", q)
	return nil
}

func (r *resolver) from(t ast.TableReference, in *scope) {
	add := func(s source) {
		for _, other := range in.sources {
			if other.name == s.name {
				fail("%s twice in FROM", s.name)
			}
		}
		in.sources = append(in.sources, s)
	}
	switch t := t.(type) {
	case *ast.NamedTableReference:
		add(r.named(t))
	case *ast.VariableTableReference:
		add(source{t.Alias.Value, r.rowsOf(t)})
	case *ast.QueryDerivedTable:
		columns := r.query(t.QueryExpression, in.outer)
		if slices.Contains(columns, "") {
			fail("a column of %s has no name", t.Alias.Value)
		}
		add(source{t.Alias.Value, columns})
	case *ast.InlineDerivedTable:
		r.expression(t.RowValues, &scope{outer: in.outer})
		var columns []string
		for _, c := range t.Columns {
			columns = append(columns, c.Value)
		}
		add(source{t.Alias.Value, columns})
	case *ast.QualifiedJoin:
		r.from(t.FirstTableReference, in)
		r.from(t.SecondTableReference, in)
		r.expression(t.SearchCondition, in)
	case *ast.UnqualifiedJoin:
		r.from(t.FirstTableReference, in)
		if d, ok := t.SecondTableReference.(*ast.QueryDerivedTable); ok && t.UnqualifiedJoinType == "CrossApply" {
			add(source{d.Alias.Value, r.query(d.QueryExpression, in)})
			return
		}
		r.from(t.SecondTableReference, in)
	}
}

func (r *resolver) named(t *ast.NamedTableReference) source {
	name := t.SchemaObject.BaseIdentifier.Value
	columns, ok := r.ctes[name]
	if !ok || len(t.SchemaObject.Identifiers) > 1 {
		columns = r.columns(t.SchemaObject)
		if len(t.SchemaObject.Identifiers) != 2 {
			fail("%s without its schema", name)
		}
	}
	for _, h := range t.TableHints {
		if i, ok := h.(*ast.IndexTableHint); ok {
			for _, v := range i.IndexValues {
				index := strings.ReplaceAll(strings.Trim(v.Identifier.Value, "[]"), "]]", "]")
				if !slices.Contains(r.tables[name].Indexes, index) {
					fail("%s has no index %s", name, index)
				}
			}
		}
	}
	if t.Alias != nil {
		name = t.Alias.Value
	}
	return source{name, columns}
}

// target is the columns of a table or table variable that rows are inserted into.
func (r *resolver) target(t ast.TableReference) []string {
	if v, ok := t.(*ast.VariableTableReference); ok {
		return r.rowsOf(v)
	}
	return r.columns(t.(*ast.NamedTableReference).SchemaObject)
}

func (r *resolver) rowsOf(t *ast.VariableTableReference) []string {
	columns, ok := r.rows[t.Variable.Name]
	if !ok {
		fail("table %s is not declared", t.Variable.Name)
	}
	return columns
}

func (r *resolver) columns(n *ast.SchemaObjectName) []string {
	t, ok := r.tables[n.BaseIdentifier.Value]
	if schema := n.SchemaIdentifier; schema != nil && schema.Value == "sys" {
		t, ok = systemTables[n.BaseIdentifier.Value]
	}
	if !ok {
		fail("unknown table %s", n.BaseIdentifier.Value)
	}
	return t.Columns
}

func last(c *ast.ColumnReferenceExpression) string {
	parts := c.MultiPartIdentifier.Identifiers
	return parts[len(parts)-1].Value
}

// expression resolves the columns, variables and subqueries in a part of a tree.
func (r *resolver) expression(part any, in *scope) {
	if v := reflect.ValueOf(part); v.IsValid() {
		r.walk(v, in)
	}
}

func (r *resolver) walk(v reflect.Value, in *scope) {
	switch v.Kind() {
	case reflect.Interface:
		if !v.IsNil() {
			r.walk(v.Elem(), in)
		}
	case reflect.Slice:
		for i := range v.Len() {
			r.walk(v.Index(i), in)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				r.walk(v.Field(i), in)
			}
		}
	case reflect.Pointer:
		if v.IsNil() {
			return
		}
		switch e := v.Interface().(type) {
		case *ast.ColumnReferenceExpression:
			if e.ColumnType == "Regular" {
				in.find(e)
			}
		case *ast.VariableReference:
			if !r.variables[e.Name] {
				fail("%s is not declared", e.Name)
			}
			r.used[e.Name] = true
		case *ast.FunctionCall:
			arguments := e.Parameters
			if strings.HasPrefix(e.FunctionName.Value, "DATE") && e.FunctionName.Value != "DATALENGTH" {
				arguments = arguments[1:]
			}
			r.expression(arguments, in)
		case *ast.NextValueForExpression:
			if name := e.SequenceName.BaseIdentifier.Value; !r.tables[name].sequence {
				fail("unknown sequence %s", name)
			}
		case ast.QueryExpression:
			r.query(e, in)
		default:
			r.walk(v.Elem(), in)
		}
	}
}

// find looks a column up, from the inside out.
func (s *scope) find(c *ast.ColumnReferenceExpression) {
	parts := c.MultiPartIdentifier.Identifiers
	for at := s; at != nil; at = at.outer {
		found := 0
		for _, t := range at.sources {
			if len(parts) == 2 && t.name != parts[0].Value {
				continue
			}
			if slices.Contains(t.columns, last(c)) {
				found++
			}
		}
		if found == 1 {
			return
		}
		if found > 1 {
			fail("column %s is ambiguous", last(c))
		}
	}
	fail("unknown column %s", last(c))
}
