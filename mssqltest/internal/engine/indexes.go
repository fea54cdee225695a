package engine

import (
	"strings"

	"github.com/sqlc-dev/teesql/ast"
)

func (x *exec) createIndex(n *node, st *ast.CreateIndexStatement) error {
	t, err := x.tableFor(st.OnName)
	if err != nil {
		return err
	}
	if t.indexNamed(st.Name.Value) != nil {
		return sqlError(1913, "The operation failed because an index or statistics with name '%s' already exists on table '%s'.", st.Name.Value, t.qualified())
	}
	ix := &index{name: st.Name.Value, unique: st.Unique, clustered: st.Clustered != nil && *st.Clustered}
	if ix.clustered && len(t.base().cols) > 0 {
		return sqlError(1902, "Cannot create more than one clustered index on table '%s'. Drop the existing clustered index '%s' before creating another.", t.qualified(), t.base().name)
	}
	if err := t.key(ix, st.Columns); err != nil {
		return err
	}
	if len(st.IncludeColumns) > 0 {
		return errUnsupported("INCLUDE of an index")
	}
	if st.FilterPredicate != nil {
		if wrong := x.s.set.options.wrong(); len(wrong) > 0 {
			return errWrongSet("CREATE INDEX", wrong)
		}
		if err := t.filter(ix, n, st.FilterPredicate); err != nil {
			return err
		}
	}
	return x.buildIndex(t, ix)
}

// filter compiles the predicate of a filtered index.
func (t *table) filter(ix *index, n *node, e ast.BooleanExpression) error {
	c := &compiler{db: t.db, batch: n.batch, source: n.batch.text, scope: &scope{}}
	src, _, err := c.base(t, tableHints{}, false)
	if err != nil {
		return err
	}
	c.scope.sources = []*source{src}
	conds, err := c.conjuncts(e)
	if err != nil {
		return err
	}
	var texts []string
	for _, k := range conds {
		if k.text == "" {
			return sqlError(10620, "Filtered index '%s' cannot be created on table '%s' because the filter expression is not supported.", ix.name, t.qualified())
		}
		texts = append(texts, k.text)
	}
	ix.filterText = strings.Join(texts, " and ")
	ix.filter = &cond{eval: func(x *exec) (tri, error) {
		ok, err := pass(x, conds)
		return triOf(ok), err
	}}
	return nil
}

// buildIndex adds ix to t, which has no rows yet. The caller has locked the table.
func (x *exec) buildIndex(t *table, ix *index) error {
	t.latch.Lock()
	defer t.latch.Unlock()
	if t.base().tree.count > 0 {
		return errUnsupported("CREATE INDEX on a table that holds rows")
	}
	was := make([]*index, len(t.indexes)) // addIndex changes the existing indexes
	for i, other := range t.indexes {
		same := *other
		was[i] = &same
	}
	t.addIndex(ix)
	t.db.bump()
	x.undo(func() {
		t.latch.Lock()
		defer t.latch.Unlock()
		t.indexes = was
		t.db.bump()
	})
	return nil
}
