package tsqlcheck

import (
	"slices"
	"strconv"
	"strings"

	"github.com/sqlc-dev/teesql/ast"
)

func (w *writer) query(q ast.QueryExpression) {
	switch q := q.(type) {
	case *ast.QuerySpecification:
		w.put("SELECT")
		w.top(q.TopRowFilter)
		if len(q.SelectElements) == 0 {
			fail("SELECT of nothing")
		}
		list(w, q.SelectElements, w.element)
		w.from(q.FromClause)
		w.where(q.WhereClause)
		w.orderBy(q.OrderByClause)
	case *ast.BinaryQueryExpression:
		w.query(q.FirstQueryExpression)
		w.put(spell(setOperators, q.BinaryQueryExpressionType))
		if q.All {
			w.put("ALL")
		}
		w.query(q.SecondQueryExpression)
		w.orderBy(q.OrderByClause)
	default:
		fail("query %T", q)
	}
}

func (w *writer) top(t *ast.TopRowFilter) {
	if t == nil {
		return
	}
	inner := t.Expression
	if p, ok := inner.(*ast.ParenthesisExpression); ok {
		inner = p.Expression
	}
	w.put("TOP (")
	w.scalar(inner)
	w.put(")")
}

func (w *writer) element(e ast.SelectElement) {
	if v, ok := e.(*ast.SelectSetVariable); ok {
		w.put(v.Variable.Name, " = ")
		w.scalar(v.Expression)
		return
	}
	s, ok := e.(*ast.SelectScalarExpression)
	if !ok {
		fail("select element %T", e)
	}
	w.scalar(s.Expression)
	if s.ColumnName != nil {
		if s.ColumnName.Identifier == nil {
			fail("a column's name that is no identifier")
		}
		w.put("AS")
		w.identifier(s.ColumnName.Identifier)
	}
}

func (w *writer) from(f *ast.FromClause) {
	if f == nil {
		return
	}
	w.put("FROM")
	if len(f.TableReferences) != 1 {
		fail("FROM with %d tables side by side", len(f.TableReferences))
	}
	w.tableReference(f.TableReferences[0])
}

func (w *writer) tableReference(t ast.TableReference) {
	switch t := t.(type) {
	case *ast.NamedTableReference:
		w.table(t)
		tableHints(t)
	case *ast.VariableTableReference:
		w.put(t.Variable.Name)
		w.alias(t.Alias, nil)
	case *ast.QueryDerivedTable:
		w.put("(")
		w.query(t.QueryExpression)
		w.put(")")
		w.alias(t.Alias, t.Columns)
	case *ast.InlineDerivedTable:
		w.put("( VALUES")
		list(w, t.RowValues, func(r *ast.RowValue) {
			if len(r.ColumnValues) != len(t.Columns) {
				fail("a row of %d values for %d columns", len(r.ColumnValues), len(t.Columns))
			}
			w.row(r)
		})
		w.put(")")
		w.alias(t.Alias, t.Columns)
	case *ast.QualifiedJoin:
		if t.QualifiedJoinType != "Inner" || t.JoinHint != "" && t.JoinHint != "None" {
			fail("%s join with hint %q", t.QualifiedJoinType, t.JoinHint)
		}
		w.tableReference(t.FirstTableReference)
		w.put("INNER JOIN")
		w.tableReference(t.SecondTableReference)
		w.put("ON")
		w.boolean(t.SearchCondition)
	case *ast.UnqualifiedJoin:
		w.tableReference(t.FirstTableReference)
		w.put(spell(unqualifiedJoins, t.UnqualifiedJoinType))
		w.tableReference(t.SecondTableReference)
	default:
		fail("table %T", t)
	}
}

func (w *writer) alias(name *ast.Identifier, columns []*ast.Identifier) {
	if name == nil {
		fail("derived table without a name")
	}
	w.put("AS")
	w.identifier(name)
	if len(columns) > 0 {
		w.put("(")
		list(w, columns, w.identifier)
		w.put(")")
	}
}

func (w *writer) table(t *ast.NamedTableReference) {
	w.object(t.SchemaObject)
	if t.Alias != nil {
		w.put("AS")
		w.identifier(t.Alias)
	}
	if len(t.TableHints) == 0 {
		return
	}
	w.put("WITH (")
	list(w, t.TableHints, func(h ast.TableHintType) {
		switch h := h.(type) {
		case *ast.TableHint:
			w.put(spell(hintNames, h.HintKind))
		case *ast.ForceSeekTableHint:
			if h.IndexValue != nil {
				fail("FORCESEEK with an index cannot be on a target")
			}
			w.put("FORCESEEK")
		case *ast.IndexTableHint:
			if len(h.IndexValues) != 1 {
				fail("INDEX of %d names", len(h.IndexValues))
			}
			w.put("INDEX (")
			list(w, h.IndexValues, func(v *ast.IdentifierOrValueExpression) { w.identifier(v.Identifier) })
			w.put(")")
		default:
			fail("table hint %T", h)
		}
	})
	w.put(")")
}

func (w *writer) where(c *ast.WhereClause) {
	if c != nil {
		w.put("WHERE")
		w.boolean(c.SearchCondition)
	}
}

func (w *writer) orderBy(o *ast.OrderByClause) {
	if o == nil {
		return
	}
	w.put("ORDER BY")
	list(w, o.OrderByElements, func(e *ast.ExpressionWithSortOrder) {
		w.scalar(e.Expression)
		w.put(spell(sortOrders, e.SortOrder))
	})
}

func (w *writer) row(r *ast.RowValue) {
	w.put("(")
	list(w, r.ColumnValues, w.scalar)
	w.put(")")
}

func (w *writer) boolean(b ast.BooleanExpression) {
	switch b := b.(type) {
	case *ast.BooleanBinaryExpression:
		w.boolean(b.FirstExpression)
		w.put(spell(connectives, b.BinaryExpressionType))
		w.boolean(b.SecondExpression)
	case *ast.BooleanComparisonExpression:
		w.scalar(b.FirstExpression)
		w.put(spell(comparisons, b.ComparisonType))
		w.scalar(b.SecondExpression)
	case *ast.BooleanIsNullExpression:
		w.scalar(b.Expression)
		w.put("IS")
		if b.IsNot {
			w.put("NOT")
		}
		w.put("NULL")
	case *ast.BooleanNotExpression:
		w.put("NOT")
		w.boolean(b.Expression)
	case *ast.BooleanParenthesisExpression:
		w.put("(")
		w.boolean(b.Expression)
		w.put(")")
	case *ast.BooleanInExpression:
		w.scalar(b.Expression)
		if b.NotDefined || b.Subquery != nil {
			fail("IN other than a list of values")
		}
		w.put("IN (")
		list(w, b.Values, w.scalar)
		w.put(")")
	case *ast.BooleanLikeExpression:
		if b.EscapeExpression != nil {
			fail("LIKE with ESCAPE")
		}
		w.scalar(b.FirstExpression)
		if b.NotDefined {
			w.put("NOT")
		}
		w.put("LIKE")
		w.scalar(b.SecondExpression)
	case *ast.ExistsPredicate:
		w.put("EXISTS (")
		w.query(b.Subquery)
		w.put(")")
	default:
		fail("condition %T", b)
	}
}

func (w *writer) scalar(e ast.ScalarExpression) {
	switch e := e.(type) {
	case *ast.ColumnReferenceExpression:
		w.columnRef(e)
	case *ast.VariableReference:
		w.put(e.Name)
	case *ast.GlobalVariableExpression:
		if e.Name != "@@ROWCOUNT" {
			fail("unknown global variable %s", e.Name)
		}
		w.put(e.Name)
	case *ast.IntegerLiteral:
		integer(e)
		w.put(e.Value)
	case *ast.BinaryLiteral:
		w.put(e.Value)
	case *ast.StringLiteral:
		if e.IsNational {
			w.WriteString("N")
		}
		w.put("'" + strings.ReplaceAll(e.Value, "'", "''") + "'")
	case *ast.NullLiteral:
		w.put("NULL")
	case *ast.ParenthesisExpression:
		w.put("(")
		w.scalar(e.Expression)
		w.put(")")
	case *ast.UnaryExpression:
		w.put(spell(signs, e.UnaryExpressionType))
		w.scalar(e.Expression)
	case *ast.BinaryExpression:
		w.scalar(e.FirstExpression)
		w.put(spell(operators, e.BinaryExpressionType))
		w.scalar(e.SecondExpression)
	case *ast.ScalarSubquery:
		w.put("(")
		w.query(e.QueryExpression)
		w.put(")")
	case *ast.SearchedCaseExpression:
		w.put("CASE")
		for _, c := range e.WhenClauses {
			w.put("WHEN")
			w.boolean(c.WhenExpression)
			w.put("THEN")
			w.scalar(c.ThenExpression)
		}
		if e.ElseExpression != nil {
			w.put("ELSE")
			w.scalar(e.ElseExpression)
		}
		w.put("END")
	case *ast.ConvertCall:
		if e.Style != nil {
			fail("CONVERT with a style")
		}
		w.put("CONVERT (")
		w.dataType(e.DataType)
		w.put(",")
		w.scalar(e.Parameter)
		w.put(")")
		if e.Collation != nil {
			w.put("COLLATE", e.Collation.Value)
		}
	case *ast.FunctionCall:
		w.function(e)
	case *ast.NextValueForExpression:
		if e.OverClause != nil {
			fail("NEXT VALUE FOR with OVER")
		}
		w.put("NEXT VALUE FOR")
		w.object(e.SequenceName)
	default:
		fail("expression %T", e)
	}
}

func (w *writer) function(f *ast.FunctionCall) {
	name := f.FunctionName.Value
	arguments, ok := functions[name]
	if !ok {
		fail("unknown function %s", name)
	}
	if len(f.Parameters) != arguments {
		fail("%s with %d arguments, not %d", name, len(f.Parameters), arguments)
	}
	if strings.HasPrefix(name, "DATE") && name != "DATALENGTH" {
		part, ok := f.Parameters[0].(*ast.ColumnReferenceExpression)
		if !ok || !slices.Contains(dateParts, part.MultiPartIdentifier.Identifiers[0].Value) {
			fail("%s of an unknown part", name)
		}
	}
	if f.UniqueRowFilter != "" && f.UniqueRowFilter != "NotSpecified" {
		fail("%s with %s", name, f.UniqueRowFilter)
	}
	w.put(name, "(")
	if strings.HasPrefix(name, "COUNT") && wildcard(f.Parameters[0]) {
		w.put("*")
	} else {
		list(w, f.Parameters, w.scalar)
	}
	w.put(")")
}

func wildcard(e ast.ScalarExpression) bool {
	c, ok := e.(*ast.ColumnReferenceExpression)
	return ok && c.ColumnType == "Wildcard"
}

func (w *writer) columnRef(c *ast.ColumnReferenceExpression) {
	switch c.ColumnType {
	case "Regular":
		for i, part := range c.MultiPartIdentifier.Identifiers {
			if i > 0 {
				w.put(".")
			}
			w.identifier(part)
		}
	default:
		fail("column of type %s", c.ColumnType)
	}
}

func (w *writer) object(n *ast.SchemaObjectName) {
	for i, part := range n.Identifiers {
		if i > 0 {
			w.put(".")
		}
		w.identifier(part)
	}
}

func (w *writer) identifier(i *ast.Identifier) {
	switch {
	case i == nil:
		fail("a name is missing")
	case strings.HasPrefix(i.Value, "[") && i.QuoteType == "NotQuoted":
		w.put(i.Value) // an index of a hint, which the parser keeps in its brackets
	case i.QuoteType == "SquareBracket":
		w.put("[" + strings.ReplaceAll(i.Value, "]", "]]") + "]")
	case i.QuoteType != "" && i.QuoteType != "NotQuoted":
		fail("name quoted as %s", i.QuoteType)
	case i.Value == "" || reserved[strings.ToUpper(i.Value)]:
		fail("%q is not a name", i.Value)
	default:
		w.put(i.Value)
	}
}

func integer(l *ast.IntegerLiteral) int {
	n, err := strconv.Atoi(l.Value)
	if err != nil {
		fail("integer %q", l.Value)
	}
	return n
}
