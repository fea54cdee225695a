package engine

import (
	"fmt"
	"strings"

	"github.com/sqlc-dev/teesql/ast"
)

// iter runs a part of a plan: it calls yield for each row, with the row's range variables in the slots of x, until yield
// returns false.
type iter func(x *exec, yield func() (bool, error)) (bool, error)

// rel is one step of a nested-loop join.
type rel struct {
	slots slotSet // what it sets
	deps  slotSet // slots that must be set before
	run   iter    // nil for a table, whose access path depends on the preceding parts
	base  *baseUse
}

// baseUse is one reference to a table in a statement.
type baseUse struct {
	at     int // in compiler.uses
	table  *table
	slot   int
	hints  tableHints
	target bool // the statement changes the rows that it finds through this reference
	need   map[int]bool
	param  *int    // a table variable: its index in the frame
	view   *object // the view through which it is read
}

// from is the FROM clause in parts: sources and join conditions.
type from struct {
	rels  []*rel
	conds []*cond
}

func (f *from) add(o from) {
	f.rels = append(f.rels, o.rels...)
	f.conds = append(f.conds, o.conds...)
}

func (f *from) slots() (s slotSet) {
	for _, r := range f.rels {
		s |= r.slots
	}
	return s
}

func (c *compiler) from(clause *ast.FromClause) (from, error) {
	var out from
	if clause == nil {
		return out, nil
	}
	for _, ref := range clause.TableReferences {
		f, err := c.reference(ref, false)
		if err != nil {
			return out, err
		}
		out.add(f)
	}
	return out, nil
}

// reference compiles one member of a FROM clause and puts its names in scope. lateral reports whether it may refer to the
// members before it, as APPLY allows.
func (c *compiler) reference(ref ast.TableReference, lateral bool) (from, error) {
	switch r := ref.(type) {
	case *ast.NamedTableReference:
		return c.named(r, false)
	case *ast.VariableTableReference:
		return c.tableVariable(r, false)
	case *ast.QueryDerivedTable:
		src, f, err := c.derived(r.QueryExpression, r.Columns, tableHints{}, lateral)
		if err == nil {
			src.alias = aliasOf(r.Alias)
			err = c.scope.add(src)
		}
		return f, err
	case *ast.InlineDerivedTable:
		return c.inlineTable(r)
	case *ast.QualifiedJoin:
		return c.qualifiedJoin(r)
	case *ast.UnqualifiedJoin:
		return c.unqualifiedJoin(r)
	}
	return from{}, errUnsupported(fmt.Sprintf("%T", ref))
}

func aliasOf(id *ast.Identifier) string {
	if id == nil {
		return ""
	}
	return strings.ToLower(id.Value)
}

// named compiles a table, a view, a common table expression or a catalog view.
func (c *compiler) named(r *ast.NamedTableReference, target bool) (from, error) {
	hints, err := c.tableHints(r.TableHints)
	if err != nil {
		return from{}, err
	}
	schema, name := nameOf(r.SchemaObject)
	alias := strings.ToLower(name)
	if r.Alias != nil {
		alias = aliasOf(r.Alias)
	}
	add := func(src *source, f from, err error) (from, error) {
		if err == nil {
			src.alias = alias
			if r.Alias == nil {
				src.schema = schema
			}
			err = c.scope.add(src)
		}
		return f, err
	}
	if r.SchemaObject.SchemaIdentifier == nil {
		for i := len(c.ctes) - 1; i >= 0; i-- {
			if cte := c.ctes[i]; cte.name == strings.ToLower(name) {
				was := c.ctes
				c.ctes = cte.outer
				defer func() { c.ctes = was }()
				return add(c.derivedFor(cte.query, cte.columns, hints, false, target))
			}
		}
	}
	if v := c.batch.variable(name); r.SchemaObject.SchemaIdentifier == nil && v != nil { // inserted or deleted, in a trigger
		return c.tableVariable(&ast.VariableTableReference{Variable: &ast.VariableReference{Name: name}, Alias: r.Alias}, target)
	}
	if strings.EqualFold(schema, "sys") {
		return add(c.systemView(name))
	}
	o := c.db.object(schema, name)
	switch {
	case o == nil:
		return from{}, errNoObject(spelled(r.SchemaObject))
	case o.view != nil:
		if c.depth++; c.depth > 32 {
			return from{}, sqlError(217, "Maximum stored procedure, function, trigger, or view nesting level exceeded (limit 32).")
		}
		was, view := c.ctes, c.view
		c.ctes = nil
		if view == nil {
			c.view = o
		}
		defer func() { c.ctes, c.view = was, view; c.depth-- }()
		return add(c.derivedFor(o.view.query, o.view.columns, hints, false, target))
	case o.table == nil:
		return from{}, errNoObject(spelled(r.SchemaObject))
	}
	return add(c.base(o.table, hints, target))
}

// base returns a source for a table.
func (c *compiler) base(t *table, hints tableHints, target bool) (*source, from, error) {
	slot, err := c.newSlot()
	if err != nil {
		return nil, from{}, err
	}
	u := &baseUse{at: len(c.uses), table: t, slot: slot, hints: hints, target: target, need: map[int]bool{}, view: c.view}
	c.uses = append(c.uses, u)
	src := &source{target: u}
	for i, col := range t.cols {
		src.cols = append(src.cols, binding{col.name, columnOf(slot, i, col.typ, col.nullable, col.name)})
	}
	return src, from{rels: []*rel{{slots: 1 << slot, base: u}}}, nil
}

func (c *compiler) tableVariable(r *ast.VariableTableReference, target bool) (from, error) {
	v := c.batch.variable(r.Variable.Name)
	if v == nil || v.table == nil {
		return from{}, errUndeclaredTable(r.Variable.Name)
	}
	def, err := c.db.shape(v)
	if err != nil {
		return from{}, err
	}
	src, f, err := c.base(def, tableHints{}, target)
	if err != nil {
		return f, err
	}
	at := v.at
	src.target.param = &at
	src.alias = strings.ToLower(r.Variable.Name)
	if r.Alias != nil {
		src.alias = aliasOf(r.Alias)
	}
	return f, c.scope.add(src)
}

func (c *compiler) qualifiedJoin(r *ast.QualifiedJoin) (from, error) {
	if r.QualifiedJoinType != "Inner" {
		return from{}, errUnsupported(r.QualifiedJoinType + " JOIN")
	}
	f, err := c.reference(r.FirstTableReference, false)
	if err != nil {
		return f, err
	}
	g, err := c.reference(r.SecondTableReference, false)
	if err != nil {
		return f, err
	}
	on, err := c.conjuncts(r.SearchCondition)
	if err != nil {
		return f, err
	}
	g.conds = append(g.conds, on...)
	f.add(g)
	return f, nil
}

func (c *compiler) unqualifiedJoin(r *ast.UnqualifiedJoin) (from, error) {
	lateral := r.UnqualifiedJoinType == "CrossApply"
	if !lateral && r.UnqualifiedJoinType != "CrossJoin" {
		return from{}, errUnsupported(r.UnqualifiedJoinType)
	}
	f, err := c.reference(r.FirstTableReference, false)
	if err != nil {
		return f, err
	}
	g, err := c.reference(r.SecondTableReference, lateral)
	if err != nil {
		return f, err
	}
	f.add(g)
	return f, nil
}
