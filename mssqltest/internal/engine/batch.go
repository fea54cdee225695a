package engine

import (
	"context"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sqlc-dev/teesql/ast"
	"github.com/sqlc-dev/teesql/parser"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// batch is a parsed text: statements and the variables that they declare. Sessions that send the same text share it.
type batch struct {
	text   string
	names  map[string]*variable
	vars   []*variable // scalars, by their index in a frame
	tables []*variable // table variables, by their index
	params []*param
	byName map[string]int // the parameters, by lower-case name
	body   []*node
	stats  *queryStats
}

// variable is a declared variable: a scalar, or a table.
type variable struct {
	name  string
	at    int
	typ   sqltype.Type
	table *ast.TableDefinition
	like  *table // the variable has its columns instead of those of the definition
}

// param is a parameter of a procedure or of sp_executesql.
type param struct {
	v         *variable
	byDefault ast.ScalarExpression
	output    bool
}

// node is one statement and those inside it.
type node struct {
	st    ast.Statement
	batch *batch
	line  int32
	kids  [][]*node
	plan  atomic.Pointer[compiled]
}

// compiled is a node's plan for one version of the catalog.
type compiled struct {
	version uint64
	plan    plan
	c       *compiler
}

func (b *batch) variable(name string) *variable { return b.names[strings.ToLower(name)] }

// parse reads a batch. declare has the parameters that it may use.
func parse(text string, declare []*param) (*batch, error) {
	script, err := parser.Parse(context.Background(), strings.NewReader(text))
	if err != nil {
		return nil, severity(15, 102, "Incorrect syntax: %s.", err)
	}
	if hasGo(text) {
		return nil, errSyntaxNear("GO")
	}
	b := &batch{text: text, names: map[string]*variable{}}
	if err := b.declareParams(declare); err != nil {
		return nil, err
	}
	if len(script.Batches) == 1 {
		err = whole(opening(text), func() error { return b.compile(script.Batches[0].Statements) })
	}
	return b, err
}

// texts has the batches of every engine of the process: its tests start hundreds, which run the same statements.
var texts parsed

// maxParsed bounds them. At the limit all are dropped.
const maxParsed = 1000

type parsed struct {
	mu  sync.Mutex // guards the following fields
	all map[batchKey]*batch
}

// batch returns the parsed text, which no engine may change.
func (p *parsed) batch(key batchKey) (*batch, error) {
	p.mu.Lock()
	b := p.all[key]
	p.mu.Unlock()
	if b != nil {
		return b, nil
	}
	params, err := declarationParams(key.declaration)
	if err != nil {
		return nil, err
	}
	if b, err = parse(key.text, params); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil || len(p.all) == maxParsed {
		p.all = map[batchKey]*batch{}
	}
	p.all[key] = b
	return b, nil
}

// forEngine returns a copy with space for the plans of one engine.
func (b *batch) forEngine(stats *queryStats) *batch {
	own := *b
	own.stats = stats
	var copied func([]*node) []*node
	copied = func(list []*node) []*node {
		out := make([]*node, len(list))
		for i, n := range list {
			out[i] = &node{st: n.st, batch: &own, line: n.line}
			for _, kids := range n.kids {
				out[i].kids = append(out[i].kids, copied(kids))
			}
		}
		return out
	}
	own.body = copied(b.body)
	return &own
}

// hasGo reports whether a text contains GO. Only the tools that read scripts know GO, a server does not, and the parser takes it for the
// end of a batch.
func hasGo(text string) bool {
	if !strings.Contains(strings.ToUpper(text), "GO") {
		return false
	}
	lexer := parser.NewLexer(text)
	for t := lexer.NextToken(); t.Type != parser.TokenEOF; t = lexer.NextToken() {
		if t.Type == parser.TokenIdent && strings.EqualFold(t.Literal, "GO") {
			return true
		}
	}
	return false
}

func (b *batch) compile(list []ast.Statement) error {
	if err := b.declarations(reflect.ValueOf(list)); err != nil {
		return err
	}
	for i, st := range list {
		if what := alone(st); what != "" && i > 0 {
			return errNotFirst(what)
		}
	}
	var err error
	b.body, err = b.nodes(list)
	return err
}

// alone names the statements that must begin a batch ("Batches of SQL statements", rules for using batches).
func alone(st ast.Statement) string {
	switch st.(type) {
	case *ast.CreateProcedureStatement, *ast.CreateOrAlterProcedureStatement, *ast.AlterProcedureStatement:
		return "CREATE/ALTER PROCEDURE"
	case *ast.CreateViewStatement, *ast.CreateOrAlterViewStatement:
		return "CREATE VIEW"
	case *ast.CreateTriggerStatement:
		return "CREATE TRIGGER"
	case *ast.CreateSchemaStatement:
		return "CREATE SCHEMA"
	}
	return ""
}

func errNotFirst(what string) error {
	return severity(15, 111, "'%s' must be the first statement in a query batch.", what)
}

// checkTerminated refuses a THROW, and a statement that begins WITH, after a statement without a semicolon ("THROW (Transact-SQL)", "WITH
// common_table_expression (Transact-SQL)").
func (b *batch) checkTerminated(st ast.Statement) error {
	var err error = severity(15, 319, "Incorrect syntax near the keyword 'with'. If this statement is a common table expression, an xmlnamespaces clause or a change tracking context clause, the previous statement must be terminated with a semicolon.")
	var with *ast.WithCtesAndXmlNamespaces
	switch st := st.(type) {
	case *ast.SelectStatement:
		with = st.WithCtesAndXmlNamespaces
	case *ast.InsertStatement:
		with = st.WithCtesAndXmlNamespaces
	case *ast.UpdateStatement:
		with = st.WithCtesAndXmlNamespaces
	case *ast.DeleteStatement:
		with = st.WithCtesAndXmlNamespaces
	case *ast.ThrowStatement:
		err = errSyntaxNear("THROW")
	}
	_, throw := st.(*ast.ThrowStatement)
	f, ok := st.(interface{ Frag() *ast.Fragment })
	if with == nil && !throw || !ok {
		return nil
	}
	last := ""
	lexer := parser.NewLexer(string([]rune(b.text)[:f.Frag().StartOffset]))
	for t := lexer.NextToken(); t.Type != parser.TokenEOF; t = lexer.NextToken() {
		last = t.Literal
	}
	if last == ";" {
		return nil
	}
	return err
}

func (b *batch) declare(v *variable) error {
	key := strings.ToLower(v.name)
	if b.names[key] != nil {
		return severity(15, 134, "The variable name '%s' has already been declared. Variable names must be unique within a query batch or stored procedure.", v.name)
	}
	if v.table != nil {
		v.at = len(b.tables)
		b.tables = append(b.tables, v)
	} else {
		v.at = len(b.vars)
		b.vars = append(b.vars, v)
	}
	b.names[key] = v
	return nil
}

func (b *batch) declareParams(list []*param) error {
	b.byName = make(map[string]int, len(list))
	for i, p := range list {
		if err := b.declare(p.v); err != nil {
			return err
		}
		b.byName[strings.ToLower(p.v.name)] = i
	}
	b.params = list
	return nil
}

func (b *batch) nodes(list []ast.Statement) ([]*node, error) {
	var out []*node
	for i, st := range list {
		if i > 0 {
			if err := b.checkTerminated(st); err != nil {
				return nil, err
			}
		}
		n, err := b.node(st)
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, nil
}

func (b *batch) node(st ast.Statement) (*node, error) {
	n := &node{st: st, batch: b}
	if f, ok := st.(interface{ Frag() *ast.Fragment }); ok {
		n.line = int32(f.Frag().StartLine)
	}
	add := func(list ...ast.Statement) error {
		for _, st := range list {
			if what := alone(st); what != "" {
				return errNotFirst(what)
			}
		}
		kids, err := b.nodes(list)
		n.kids = append(n.kids, kids)
		return err
	}
	var err error
	switch st := st.(type) {
	case *ast.LabelStatement:
		return nil, errSyntaxNear(st.Value)
	case *ast.BeginEndBlockStatement:
		err = add(st.StatementList.Statements...)
	case *ast.IfStatement:
		if err = add(st.ThenStatement); err == nil && st.ElseStatement != nil {
			err = add(st.ElseStatement)
		}
	case *ast.WhileStatement:
		err = add(st.Statement)
	case *ast.TryCatchStatement:
		err = tryNode(st, add)
	}
	return n, err
}

func statements(list *ast.StatementList) []ast.Statement {
	if list == nil {
		return nil
	}
	return list.Statements
}

// declarations walks a batch in the order of its text, notes declarations and refuses undeclared names: errors 137 and 1087 occur before
// any statement runs.
func (b *batch) declarations(v reflect.Value) error {
	switch v.Kind() {
	case reflect.Interface:
		if v.IsNil() {
			return nil
		}
		return b.declarations(v.Elem())
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		switch n := v.Interface().(type) {
		case *ast.CreateProcedureStatement, *ast.CreateOrAlterProcedureStatement, *ast.AlterProcedureStatement, *ast.CreateTriggerStatement: // have separate variables
			return nil
		case *ast.NamedTableReference:
			if err := b.checkHints(n); err != nil {
				return err
			}
		case *ast.DeclareVariableElement:
			if err := b.declarations(reflect.ValueOf(n.Value)); err != nil {
				return err
			}
			return b.declareElement(n)
		case *ast.DeclareTableVariableBody:
			return b.declare(&variable{name: n.VariableName.Value, table: n.Definition})
		case *ast.ExecuteParameter:
			return b.declarations(reflect.ValueOf(&n.ParameterValue).Elem())
		case *ast.VariableTableReference:
			if x := b.variable(n.Variable.Name); x == nil || x.table == nil {
				return errUndeclaredTable(n.Variable.Name)
			}
			return nil
		case *ast.VariableReference:
			if b.variable(n.Name) == nil {
				return errUndeclared(n.Name)
			}
			return nil
		}
		return b.declarations(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanInterface() { // the field is exported
				if err := b.declarations(v.Field(i)); err != nil {
					return err
				}
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			if err := b.declarations(v.Index(i)); err != nil {
				return err
			}
		}
	}
	return nil
}

// declareElement notes one scalar.
func (b *batch) declareElement(n *ast.DeclareVariableElement) error {
	if n.DataType == nil || n.DataType.Name == nil {
		return errUnsupported("the type in " + b.span(n.Frag()))
	}
	typ, err := typeOf(n.DataType, 1)
	if err != nil {
		return err
	}
	return b.declare(&variable{name: n.VariableName.Value, typ: typ})
}

// declarationParams reads the declaration string of sp_executesql.
func declarationParams(text string) ([]*param, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	script, err := parser.Parse(context.Background(), strings.NewReader("CREATE PROCEDURE p "+text+" AS RETURN"))
	if err != nil || len(script.Batches) != 1 || len(script.Batches[0].Statements) != 1 {
		return nil, errSyntaxNear(text)
	}
	st, ok := script.Batches[0].Statements[0].(*ast.CreateProcedureStatement)
	if !ok {
		return nil, errSyntaxNear(text)
	}
	var out []*param
	err = whole(opening(text), func() (err error) {
		out, err = procParams(st.Parameters)
		return err
	})
	return out, err
}

func procParams(list []*ast.ProcedureParameter) ([]*param, error) {
	var out []*param
	for _, p := range list {
		v := &variable{name: p.VariableName.Value}
		var err error
		if v.typ, err = paramType(p.DataType); err != nil {
			return nil, err
		}
		out = append(out, &param{v: v, byDefault: p.Value, output: p.Modifier == "Output"})
	}
	return out, nil
}

// paramType returns the type of a parameter. FreeTDS and tedious also declare the types that preceded (max), which no column has here.
func paramType(ref ast.DataTypeReference) (sqltype.Type, error) {
	if r, ok := ref.(*ast.SqlDataTypeReference); ok && len(r.Parameters) == 0 && r.Name != nil {
		kind, older := map[string]sqltype.Kind{
			"text": sqltype.VarChar, "ntext": sqltype.NVarChar, "image": sqltype.VarBinary,
		}[lower(r.Name.BaseIdentifier.Value)]
		if older {
			return sqltype.Type{Kind: kind, Size: sqltype.Max}, nil
		}
	}
	return typeOf(ref, 1)
}

// frame is one run of a batch: the values of its variables.
type frame struct {
	batch  *batch
	vars   []sqltype.Value
	tables []*table
	inProc bool
	proc   string
	made   options // of the procedure's creation
}
