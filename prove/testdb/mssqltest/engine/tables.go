package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sqlc-dev/teesql/ast"

	"github.com/chanq/chanq/prove/testdb/mssqltest/lock"
	"github.com/chanq/chanq/prove/testdb/mssqltest/sqltype"
)

// shape builds, once for each version of the catalog, the table that a table
// variable stands for.
func (db *database) shape(v *variable) (*table, error) {
	t := newTable(db, "dbo", v.name)
	t.private = true
	c := &compiler{db: db, batch: &batch{names: map[string]*variable{}}}
	return t, c.define(t, v.table)
}

// instance is an empty table of the same shape.
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

// define gives t the columns and constraints of a definition.
func (c *compiler) define(t *table, def *ast.TableDefinition) error {
	var constraints []*ast.UniqueConstraintDefinition
	var checks []unmade
	for _, d := range def.ColumnDefinitions {
		checks = append(checks, checksOf(d)...)
		own, err := c.defineColumn(t, d)
		if err != nil {
			return err
		}
		constraints = append(constraints, own...)
	}
	for _, tc := range def.TableConstraints {
		switch k := tc.(type) {
		case *ast.UniqueConstraintDefinition:
			constraints = append(constraints, k)
		case *ast.CheckConstraintDefinition:
			checks = append(checks, unmade{k, ""})
		default:
			return errUnsupported(fmt.Sprintf("%T", tc))
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
	// The clustered one first: the others lead to it.
	slices.SortStableFunc(constraints, func(a, b *ast.UniqueConstraintDefinition) int {
		return boolInt(clustered(b, constraints)) - boolInt(clustered(a, constraints))
	})
	for _, u := range constraints {
		ix, err := t.constraint(u, clustered(u, constraints))
		if err != nil {
			return err
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

// clustered says whether a constraint has the clustered index: a primary key
// has it by default, unless another asks for it.
func clustered(u *ast.UniqueConstraintDefinition, all []*ast.UniqueConstraintDefinition) bool {
	if u.IndexType != nil && u.IndexType.IndexTypeKind != "" {
		return u.IndexType.IndexTypeKind == "Clustered"
	}
	if u.Clustered {
		return true
	}
	if !u.IsPrimaryKey {
		return false
	}
	for _, o := range all {
		if o != u && (o.Clustered || o.IndexType != nil && o.IndexType.IndexTypeKind == "Clustered") {
			return false
		}
	}
	return true
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
		case *ast.DefaultConstraintDefinition:
			defaults = k
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
			return nil, errUnsupported(fmt.Sprintf("%T", k))
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

// constraint makes the index of a PRIMARY KEY or UNIQUE constraint.
func (t *table) constraint(u *ast.UniqueConstraintDefinition, clustered bool) (*index, error) {
	ix := &index{unique: true, primary: u.IsPrimaryKey, constraint: true, clustered: clustered}
	if u.ConstraintIdentifier != nil {
		ix.name = u.ConstraintIdentifier.Value
	} else {
		prefix := map[bool]string{true: "PK__", false: "UQ__"}[u.IsPrimaryKey]
		ix.name = fmt.Sprintf("%s%s__%08X", prefix, cutText(t.name, sqltype.NVarChar, 8), len(t.indexes)+int(t.db.version.Load()))
	}
	if err := t.key(ix, u.Columns); err != nil {
		return nil, err
	}
	if u.IsPrimaryKey {
		for _, c := range ix.cols {
			t.cols[c].nullable = false
		}
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
		if typ.Size == sqltype.Max || typ.Kind == sqltype.XML {
			return sqlError(1919, "Column '%s' in table '%s' is of a type that is invalid for use as a key column in an index.", name, t.qualified())
		}
		size += typ.Size
		ix.cols = append(ix.cols, at)
		ix.desc = append(ix.desc, k.SortOrder == ast.SortOrderDescending)
	}
	if limit := map[bool]int{true: 900, false: 1700}[ix.clustered]; size > limit {
		return sqlError(1944, "Index '%s' was not created. This index has a key length of at least %d bytes. The maximum permissible key length is %d bytes.", ix.name, size, limit)
	}
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
