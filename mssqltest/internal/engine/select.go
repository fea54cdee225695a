package engine

import "github.com/sqlc-dev/teesql/ast"

// selectPlan is a compiled SELECT statement.
type selectPlan struct {
	c     *compiler
	query *queryPlan
}

func (c *compiler) selectStatement(st *ast.SelectStatement) (*selectPlan, error) {
	if st.Into != nil {
		return nil, errUnsupported("SELECT INTO")
	}
	if err := c.withCTEs(st.WithCtesAndXmlNamespaces); err != nil {
		return nil, err
	}
	if err := c.optimizerHints(st.OptimizerHints); err != nil {
		return nil, err
	}
	q, err := c.query(st.QueryExpression)
	return &selectPlan{c, q}, err
}

func (p *selectPlan) tables() ([]*baseUse, []*table) { return p.c.uses, nil }

// assigns reports whether the statement sets variables and returns nothing.
func (p *selectPlan) assigns() bool { return p.query.block != nil && len(p.query.block.assign) > 0 }

func (p *selectPlan) run(x *exec) (int64, error) {
	var n int64
	limit := x.rowLimit()
	if p.assigns() {
		b := p.query.block
		_, err := b.iterate(x, func() (bool, error) {
			n++
			for _, a := range b.assign {
				v, err := a.val.eval(x)
				if err != nil {
					return false, err
				}
				x.f.vars[a.at] = v
			}
			return n != limit, nil
		})
		return n, err
	}
	if err := x.s.columns(p.query.cols); err != nil {
		return 0, err
	}
	_, err := p.query.rows(x, func(row Row) (bool, error) {
		n++
		return n != limit, x.row(row)
	})
	return n, err
}
