package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sqlc-dev/teesql/ast"

	"github.com/chanq/chanq/mssqltest/internal/lock"
	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// shape builds, once for each version of the catalog, the table that a table variable declares.
func (db *database) shape(v *variable) (*table, error) {
	t := newTable(db, "dbo", v.name)
	t.private = true
	if v.like != nil {
		t.cols, t.byName = v.like.cols, v.like.byName
		return t, nil
	}
	c := &compiler{db: db, batch: &batch{names: map[string]*variable{}}}
	return t, c.define(t, v.table)
}

// instance returns an empty table of the same shape.
func (t *table) instance() *table {
	out := &table{
		db: t.db, schema: t.schema, name: t.name, private: t.private, cols: t.cols, byName: t.byName,
		seed: t.seed, increment: t.increment, nextIdentity: t.seed, checks: t.checks,
	}
	for _, ix := range t.indexes {
		same := *ix
		same.table, same.tree = out, newTree()
		out.indexes = append(out.indexes, &same)
	}
	return out
}

// define adds the columns and constraints of a definition to t.
func (c *compiler) define(t *table, def *ast.TableDefinition) error {
	var keys []*ast.UniqueConstraintDefinition
	var checks []unmade
	for _, d := range def.ColumnDefinitions {
		checks = append(checks, checksOf(d)...)
		own, err := c.defineColumn(t, d)
		if err != nil {
			return err
		}
		keys = append(keys, own...)
	}
	for _, tc := range def.TableConstraints {
		switch k := tc.(type) {
		case *ast.UniqueConstraintDefinition:
			keys = append(keys, k)
		case *ast.CheckConstraintDefinition:
			checks = append(checks, unmade{k, ""})
		default:
			return errUnsupportedAt(tc)
		}
	}
	for _, k := range checks {
		if err := c.defineCheck(t, k); err != nil {
			return err
		}
	}
	if len(def.Indexes) > 0 || def.SystemTimePeriod != nil {
		return errUnsupported("INDEX in CREATE TABLE")
	}
	for _, k := range keys {
		ix, err := t.keyConstraint(k)
		if err != nil {
			return err
		}
		if ix.clustered && !t.base().rid || ix.primary && slices.ContainsFunc(t.indexes, func(other *index) bool { return other.primary }) {
			return sqlError(8110, "Cannot add multiple PRIMARY KEY or clustered constraints to table '%s'.", t.qualified())
		}
		t.addIndex(ix)
	}
	return nil
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (c *compiler) defineColumn(t *table, d *ast.ColumnDefinition) ([]*ast.UniqueConstraintDefinition, error) {
	if d.ComputedColumnExpression != nil || d.DataType == nil {
		return nil, errUnsupported("computed column")
	}
	name := d.ColumnIdentifier.Value
	if t.column(name) >= 0 {
		return nil, sqlError(2705, "Column names in each table must be unique. Column name '%s' in table '%s' is specified more than once.", name, t.name)
	}
	typ, err := typeOf(d.DataType, 1)
	if err != nil {
		return nil, err
	}
	col := &column{name: name, typ: typ, nullable: true}
	if d.Collation != nil {
		name := strings.ToUpper(d.Collation.Value)
		if !strings.Contains(name, "_CI_") {
			return nil, errUnsupported("COLLATE " + name)
		}
	}
	if d.Nullable != nil {
		col.nullable = d.Nullable.Nullable
	}
	defaults := d.DefaultConstraint
	var keys []*ast.UniqueConstraintDefinition
	for _, k := range d.Constraints {
		switch k := k.(type) {
		case *ast.NullableConstraintDefinition:
			col.nullable = k.Nullable
		case *ast.UniqueConstraintDefinition:
			if len(k.Columns) == 0 {
				own := *k
				own.Columns = []*ast.ColumnWithSortOrder{{Column: &ast.ColumnReferenceExpression{
					MultiPartIdentifier: &ast.MultiPartIdentifier{Identifiers: []*ast.Identifier{d.ColumnIdentifier}}}}}
				k = &own
			}
			keys = append(keys, k)
		case *ast.CheckConstraintDefinition: // see checksOf
		default:
			return nil, errUnsupportedAt(k)
		}
	}
	if d.IdentityOptions != nil {
		col.identity, col.nullable = true, false
		t.seed, t.increment = 1, 1
		for i, e := range []ast.ScalarExpression{d.IdentityOptions.IdentitySeed, d.IdentityOptions.IdentityIncrement} {
			if e == nil {
				continue
			}
			sc, err := c.scalar(e)
			if err != nil {
				return nil, err
			}
			v, err := sc.eval(&exec{})
			if err != nil {
				return nil, err
			}
			n, _ := v.(int64)
			if i == 0 {
				t.seed = n
			} else {
				t.increment = n
			}
		}
		t.nextIdentity = t.seed
	}
	if defaults != nil {
		if err := c.defineDefault(col, defaults); err != nil {
			return nil, err
		}
	}
	t.addColumn(col)
	return keys, nil
}

func (c *compiler) defineDefault(col *column, d *ast.DefaultConstraintDefinition) error {
	sc, err := c.scalar(d.Expression)
	if err != nil {
		return err
	}
	if err := checkImplicit(sc.typ, col.typ); err != nil {
		return err
	}
	col.byDefault = sc
	if d.ConstraintIdentifier != nil {
		col.defName = d.ConstraintIdentifier.Value
	}
	return nil
}

// keyConstraint returns the index of a PRIMARY KEY, which is clustered by default, or of a UNIQUE constraint, which is not.
func (t *table) keyConstraint(u *ast.UniqueConstraintDefinition) (*index, error) {
	ix := &index{unique: true, constraint: true, primary: u.IsPrimaryKey, clustered: u.IsPrimaryKey}
	if u.IndexType != nil && u.IndexType.IndexTypeKind != "" {
		ix.clustered = u.IndexType.IndexTypeKind == "Clustered"
	}
	if u.ConstraintIdentifier != nil {
		ix.name = u.ConstraintIdentifier.Value
	} else {
		kind := map[bool]string{true: "PK", false: "UQ"}[ix.primary]
		ix.name = fmt.Sprintf("%s__%s__%08X", kind, cutText(t.name, sqltype.NVarChar, 8), len(t.indexes)+int(t.db.version.Load()))
	}
	if err := t.key(ix, u.Columns); err != nil {
		return nil, err
	}
	for _, c := range ix.cols {
		t.cols[c].nullable = t.cols[c].nullable && !ix.primary
	}
	return ix, nil
}

func (t *table) key(ix *index, cols []*ast.ColumnWithSortOrder) error {
	size := 0
	for _, k := range cols {
		parts := k.Column.MultiPartIdentifier.Identifiers
		name := parts[len(parts)-1].Value
		at := t.column(name)
		if at < 0 {
			return sqlError(1911, "Column name '%s' does not exist in the target table or view.", name)
		}
		typ := t.cols[at].typ
		if k.SortOrder == ast.SortOrderDescending || !isOrdered(typ.Kind) {
			return errUnsupported("DESC, bit, float or decimal in the key of an index")
		}
		if typ.Size == sqltype.Max || typ.Kind == sqltype.XML {
			return sqlError(1919, "Column '%s' in table '%s' is of a type that is invalid for use as a key column in an index.", name, t.qualified())
		}
		size += typ.Size
		ix.cols = append(ix.cols, at)
	}
	if limit := map[bool]int{true: 900, false: 1700}[ix.clustered]; size > limit {
		return sqlError(1944, "Index '%s' was not created. This index has a key length of at least %d bytes. The maximum permissible key length is %d bytes.", ix.name, size, limit)
	}
	return nil
}

// alterTableAdd adds columns to a table that has no rows yet.
func (x *exec) alterTableAdd(n *node, st *ast.AlterTableAddTableElementStatement) error {
	t, err := x.tableFor(st.SchemaObjectName)
	if err != nil {
		return err
	}
	if st.Definition == nil || len(st.Definition.TableConstraints) > 0 || len(st.Definition.Indexes) > 0 {
		return errUnsupportedAt(st)
	}
	t.latch.Lock()
	defer t.latch.Unlock()
	if t.base().tree.count > 0 {
		return errUnsupported("ALTER TABLE of a table that holds rows")
	}
	cols, byName := t.cols, t.byName
	restore := func() { t.cols, t.byName = cols, byName }
	t.cols, t.byName = slices.Clip(cols), maps.Clone(byName)
	c := &compiler{db: t.db, batch: n.batch, source: n.batch.text, maker: x.s}
	for _, d := range st.Definition.ColumnDefinitions {
		if len(checksOf(d)) > 0 || d.IdentityOptions != nil {
			restore()
			return errUnsupportedAt(d)
		}
		keys, err := c.defineColumn(t, d)
		if err == nil && len(keys) > 0 {
			err = errUnsupportedAt(d)
		}
		if err != nil {
			restore()
			return err
		}
	}
	t.db.bump()
	x.undo(func() {
		t.latch.Lock()
		defer t.latch.Unlock()
		restore()
		t.db.bump()
	})
	return nil
}

func (x *exec) createTable(n *node, st *ast.CreateTableStatement) error {
	schema, name := nameOf(st.SchemaObjectName)
	if st.Definition == nil || strings.HasPrefix(name, "#") {
		return errUnsupported("temporary table or CREATE TABLE AS")
	}
	t := newTable(x.s.e.db, schema, name)
	c := &compiler{db: x.s.e.db, batch: n.batch, source: n.batch.text, maker: x.s}
	if err := c.define(t, st.Definition); err != nil {
		return err
	}
	undo, err := x.s.e.db.add(&object{schema: schema, name: name, table: t})
	if err != nil {
		return err
	}
	x.undo(undo)
	return x.lockTable(t, lock.SchM, x.wait())
}
