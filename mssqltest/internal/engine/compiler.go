package engine

import (
	"fmt"
	"strings"

	"github.com/sqlc-dev/teesql/ast"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// maxSlots bounds the tables of one statement.
const maxSlots = 64

// compiler turns the tree of one statement into closures. The closures are immutable, so that sessions share them.
type compiler struct {
	db     *database
	batch  *batch
	source string // text of the batch
	scope  *scope
	ctes   []cteDef
	slots  int
	spools int
	uses   []*baseUse
	paths  []*access
	agg    *aggregation // set while compiling the clauses after GROUP BY
	hints  queryHints
	depth  int      // of views within views
	view   *object  // the outermost one
	maker  *Session // creates the table whose defaults are compiled
}

type cteDef struct {
	name    string
	columns []*ast.Identifier
	query   ast.QueryExpression
	outer   []cteDef // the definitions that it may reference
}

// queryHints are the OPTION clause.
type queryHints struct{ forceOrder bool }

// optimizerHints reads the hints of the OPTION clause and refuses hints that neither chanq nor the articles use.
func (c *compiler) optimizerHints(list []ast.OptimizerHintBase) error {
	for _, h := range list {
		if pairs, ok := h.(*ast.OptimizeForOptimizerHint); ok {
			if err := c.optimizeFor(pairs); err != nil {
				return err
			}
			continue
		}
		hint, ok := h.(*ast.OptimizerHint)
		if !ok {
			return errUnsupported(fmt.Sprintf("%T", h))
		}
		switch hint.HintKind {
		case "ForceOrder":
			c.hints.forceOrder = true
		case "LoopJoin", "KeepFixedPlan": // a plan always follows the text
		default:
			return errUnsupported("OPTION (" + hint.HintKind + ")")
		}
	}
	return nil
}

// optimizeFor accepts values of declared variables: a plan always follows the text.
func (c *compiler) optimizeFor(hint *ast.OptimizeForOptimizerHint) error {
	for _, p := range hint.Pairs {
		if _, err := c.scalar(p.Variable); err != nil {
			return err
		}
	}
	return nil
}

func (c *compiler) withCTEs(w *ast.WithCtesAndXmlNamespaces) error {
	if w == nil {
		return nil
	}
	for _, e := range w.CommonTableExpressions {
		c.ctes = append(c.ctes, cteDef{
			name: strings.ToLower(e.ExpressionName.Value), columns: e.Columns, query: e.QueryExpression,
			outer: append([]cteDef(nil), c.ctes...),
		})
	}
	return nil
}

func (c *compiler) newSlot() (int, error) {
	if c.slots == maxSlots {
		return 0, sqlError(8623, "The query processor ran out of internal resources and could not produce a query plan.")
	}
	c.slots++
	return c.slots - 1, nil
}

func (c *compiler) newSpool() int {
	c.spools++
	return c.spools - 1
}

// inner runs f with a new scope inside the current one.
func (c *compiler) inner(f func() error) error {
	outer, agg := c.scope, c.agg
	c.scope, c.agg = &scope{parent: outer}, nil
	defer func() { c.scope, c.agg = outer, agg }()
	return f()
}

// constant returns an expression with a constant value.
func constant(v sqltype.Value, t sqltype.Type) *scalar {
	return &scalar{typ: t, nullable: v == nil, eval: func(*exec) (sqltype.Value, error) { return v, nil }}
}

// columnOf returns the expression for column col of the row in slot.
func columnOf(slot, col int, t sqltype.Type, nullable bool, name string) *scalar {
	use := colUse{slot: slot, col: col}
	return &scalar{
		typ: t, nullable: nullable, name: name,
		refs: 1 << slot, cols: []colUse{use}, col: &use,
		eval: func(x *exec) (sqltype.Value, error) {
			row := x.slots[slot].row
			if row == nil {
				return nil, nil
			}
			return row[col], nil
		},
	}
}

// derive makes an expression over others.
func derive(t sqltype.Type, args []*scalar, eval func(*exec) (sqltype.Value, error)) *scalar {
	out := &scalar{typ: t, eval: eval, nullable: true}
	for _, a := range args {
		out.refs |= a.refs
		out.cols = append(out.cols, a.cols...)
		out.volatile = out.volatile || a.volatile
	}
	return out
}

// cast converts sc to a type, and returns sc itself if it already has the type.
func cast(sc *scalar, to sqltype.Type, style int) *scalar {
	if sc.typ == to {
		return sc
	}
	from := sc.typ
	out := derive(to, []*scalar{sc}, func(x *exec) (sqltype.Value, error) {
		v, err := sc.eval(x)
		if err != nil || v == nil {
			return nil, err
		}
		return convert(v, from, to, style)
	})
	out.nullable = sc.nullable
	return out
}

// castImplicit is cast for implicit conversions, and refuses those that the language does not allow.
func castImplicit(sc *scalar, to sqltype.Type) (*scalar, error) {
	if err := checkImplicit(sc.typ, to); err != nil {
		return nil, err
	}
	return cast(sc, to, 0), nil
}
