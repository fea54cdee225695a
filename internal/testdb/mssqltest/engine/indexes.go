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
	for _, inc := range st.IncludeColumns {
		parts := inc.MultiPartIdentifier.Identifiers
		at := t.column(parts[len(parts)-1].Value)
		if at < 0 {
			return sqlError(1911, "Column name '%s' does not exist in the target table or view.", parts[len(parts)-1].Value)
		}
		ix.include = append(ix.include, at)
	}
	if st.FilterPredicate != nil {
		if !x.s.set.quotedIdentifier || !x.s.set.ansi {
			return errWrongSet("CREATE INDEX")
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

// buildIndex adds ix to t, whose rows it enters. The caller has locked the
// table.
func (x *exec) buildIndex(t *table, ix *index) error {
	t.latch.Lock()
	defer t.latch.Unlock()
	was := t.snapshotIndexes()
	undo := func() {
		t.indexes = was
	}
	records := t.records()
	t.addIndex(ix)
	again := t.indexes[ix.at : ix.at+1]
	if ix.clustered {
		// Every other index leads to the rows by the new key.
		again = t.indexes
		for _, other := range t.indexes {
			if other != nil {
				other.tree = newTree()
			}
		}
	}
	old := make([][]string, 0, len(records))
	for _, rec := range records {
		for v := rec.head; v != nil; v = v.prev {
			old = append(old, v.keys)
			if v.row == nil {
				continue
			}
			keys := make([]string, len(t.indexes))
			copy(keys, v.keys)
			v.keys = keys
			for _, one := range again {
				if one == nil {
					continue
				}
				key, err := one.keyOf(v.row, rec.id)
				if err != nil {
					undo()
					return err
				}
				keys[one.at] = key
				if key == "" {
					continue
				}
				if v == rec.head && one.unique && one.taken(key, rec) {
					undo()
					t.restoreKeys(records, old)
					return severity(16, 1505, "The CREATE UNIQUE INDEX statement terminated because a duplicate key was found for the object name '%s' and the index name '%s'. The duplicate key value is (%s).", t.qualified(), ix.name, one.describe(v.row))
				}
				one.tree.put(fullKey(key, rec.id), rec)
			}
		}
	}
	t.version = t.db.bump()
	x.undo(func() {
		t.latch.Lock()
		defer t.latch.Unlock()
		undo()
		t.restoreKeys(records, old)
		t.db.bump()
	})
	return nil
}

// snapshotIndexes copies what building an index changes.
func (t *table) snapshotIndexes() []*index {
	out := make([]*index, len(t.indexes))
	for i, ix := range t.indexes {
		if ix != nil {
			same := *ix
			out[i] = &same
		}
	}
	return out
}

func (t *table) restoreKeys(records []*record, old [][]string) {
	at := 0
	for _, rec := range records {
		for v := rec.head; v != nil && at < len(old); v = v.prev {
			v.keys = old[at]
			at++
		}
	}
}

// records lists every record once. The caller holds the latch.
func (t *table) records() []*record {
	seen := map[*record]bool{}
	var out []*record
	for l := t.base().tree.first; l != nil; l = l.next {
		for _, r := range l.recs {
			if !seen[r] {
				seen[r] = true
				out = append(out, r)
			}
		}
	}
	return out
}
