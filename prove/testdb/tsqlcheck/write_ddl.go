package tsqlcheck

import "github.com/sqlc-dev/teesql/ast"

func (w *writer) column(c *ast.ColumnDefinition) {
	w.identifier(c.ColumnIdentifier)
	w.dataType(c.DataType)
	nullable := 0
	for _, constraint := range c.Constraints {
		switch n := constraint.(type) {
		case *ast.NullableConstraintDefinition:
			nullable++
			w.nullable(n)
		case *ast.UniqueConstraintDefinition:
			if !clusteredKey(n) && (!n.IsPrimaryKey || n.IndexType != nil) || n.ConstraintIdentifier != nil {
				fail("key of column %s is no clustered primary key without a name", c.ColumnIdentifier.Value)
			}
			w.put("PRIMARY KEY")
			if n.IndexType != nil { // the default is clustered
				w.put("CLUSTERED")
			}
		default:
			fail("column constraint %T", constraint)
		}
	}
	if n := c.Nullable; n != nil {
		nullable++
		w.nullable(n)
	}
	if nullable != 1 {
		fail("column %s does not say NULL or NOT NULL", c.ColumnIdentifier.Value)
	}
	if d := c.DefaultConstraint; d != nil {
		w.put("CONSTRAINT")
		w.identifier(d.ConstraintIdentifier)
		w.put("DEFAULT")
		w.scalar(d.Expression)
	}
}

func (w *writer) nullable(n *ast.NullableConstraintDefinition) {
	if n.Nullable {
		w.put("NULL")
	} else {
		w.put("NOT NULL")
	}
}

func (w *writer) constraint(c ast.TableConstraint) {
	if check, ok := c.(*ast.CheckConstraintDefinition); ok {
		w.put("CONSTRAINT")
		w.identifier(check.ConstraintIdentifier)
		w.put("CHECK (")
		w.boolean(check.CheckCondition)
		w.put(")")
		return
	}
	u, ok := c.(*ast.UniqueConstraintDefinition)
	if ok && !u.IsPrimaryKey && u.ConstraintIdentifier == nil && u.IndexType == nil && len(u.IndexOptions) == 0 {
		w.put("UNIQUE (")
		w.keyColumns(u.Columns)
		w.put(")")
		return
	}
	if !ok || !clusteredKey(u) {
		fail("table constraint %T other than a clustered primary key, a CHECK or a UNIQUE without a name", c)
	}
	w.put("CONSTRAINT")
	w.identifier(u.ConstraintIdentifier)
	w.put("PRIMARY KEY CLUSTERED (")
	w.keyColumns(u.Columns)
	w.put(")")
	w.indexOptions(u.IndexOptions)
}

// namelessKey writes the key of a table variable, which has no name.
func (w *writer) namelessKey(c ast.TableConstraint) {
	u, ok := c.(*ast.UniqueConstraintDefinition)
	if !ok || !clusteredKey(u) || u.ConstraintIdentifier != nil || len(u.IndexOptions) > 0 {
		fail("constraint %T of a table variable other than a clustered primary key without a name", c)
	}
	w.put("PRIMARY KEY CLUSTERED (")
	w.keyColumns(u.Columns)
	w.put(")")
}

// sequence writes the only supported form of CREATE SEQUENCE.
func (w *writer) sequence(s *ast.CreateSequenceStatement) {
	w.put("CREATE SEQUENCE")
	w.object(s.Name)
	for _, o := range s.SequenceOptions {
		switch o := o.(type) {
		case *ast.DataTypeSequenceOption:
			w.put("AS")
			w.dataType(o.DataType)
		case *ast.SequenceOption:
			w.put("NO", spell(sequenceOptions, o.OptionKind))
		case *ast.ScalarExpressionSequenceOption:
			w.put(spell(sequenceOptions, o.OptionKind))
			if n, ok := o.OptionValue.(*ast.NumericLiteral); ok {
				w.put(n.Value)
			} else {
				w.scalar(o.OptionValue)
			}
		default:
			fail("sequence option %T", o)
		}
	}
}

func clusteredKey(u *ast.UniqueConstraintDefinition) bool {
	return u.IsPrimaryKey && u.IndexType != nil && u.IndexType.IndexTypeKind == "Clustered"
}

func (w *writer) keyColumns(columns []*ast.ColumnWithSortOrder) {
	if len(columns) == 0 {
		fail("a key of no columns")
	}
	list(w, columns, func(c *ast.ColumnWithSortOrder) { w.columnRef(c.Column) })
}

func (w *writer) index(s *ast.CreateIndexStatement) {
	w.put("CREATE")
	if s.Unique {
		w.put("UNIQUE")
	}
	if s.Clustered == nil || *s.Clustered {
		fail("index that does not say NONCLUSTERED")
	}
	w.put("NONCLUSTERED INDEX")
	w.identifier(s.Name)
	w.put("ON")
	w.object(s.OnName)
	w.put("(")
	w.keyColumns(s.Columns)
	w.put(")")
	if len(s.IncludeColumns) > 0 {
		w.put("INCLUDE (")
		list(w, s.IncludeColumns, w.columnRef)
		w.put(")")
	}
	if s.FilterPredicate != nil {
		w.put("WHERE")
		w.boolean(s.FilterPredicate)
	}
	w.indexOptions(s.IndexOptions)
}

func (w *writer) indexOptions(options []ast.IndexOption) {
	if len(options) == 0 {
		return
	}
	w.put("WITH (")
	list(w, options, func(o ast.IndexOption) {
		state, ok := o.(*ast.IndexStateOption)
		if !ok {
			fail("index option %T", o)
		}
		w.put(spell(indexOptions, state.OptionKind), "=", onOff(state.OptionState == "On"))
	})
	w.put(")")
}

// dataType writes a type and checks its length.
func (w *writer) dataType(d ast.DataTypeReference) {
	t, ok := d.(*ast.SqlDataTypeReference)
	if !ok {
		fail("type %T", d)
	}
	name := t.Name.BaseIdentifier.Value
	limits, ok := types[name]
	if !ok {
		fail("unknown type %s", name)
	}
	w.put(name)
	if limits == (limit{}) != (len(t.Parameters) == 0) || len(t.Parameters) > 1 {
		fail("type %s with %d lengths", name, len(t.Parameters))
	}
	for _, p := range t.Parameters {
		w.put("(")
		switch p := p.(type) {
		case *ast.MaxLiteral:
			if !limits.max {
				fail("%s(max)", name)
			}
			w.put("max")
		case *ast.IntegerLiteral:
			n := integer(p)
			if n < limits.low || n > limits.high {
				fail("%s(%s)", name, p.Value)
			}
			w.put(p.Value)
		default:
			fail("length %T of %s", p, name)
		}
		w.put(")")
	}
}

func (w *writer) ifExists(is bool) {
	if is {
		w.put("IF EXISTS")
	}
}
