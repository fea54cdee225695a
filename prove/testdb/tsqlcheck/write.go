package tsqlcheck

import (
	"slices"
	"strings"

	"github.com/sqlc-dev/teesql/ast"
)

// writer writes a tree as text. It fails on unsupported parts.
type writer struct{ strings.Builder }

func (w *writer) put(words ...string) {
	for _, s := range words {
		w.WriteString(s)
		w.WriteByte(' ')
	}
}

func list[T any](w *writer, items []T, write func(T)) {
	for i, item := range items {
		if i > 0 {
			w.put(",")
		}
		write(item)
	}
}

func (w *writer) statement(s ast.Statement) {
	switch s := s.(type) {
	case *ast.PredicateSetStatement:
		w.put("SET", spell(predicateSets, s.Options), onOff(s.IsOn))
	case *ast.SetTransactionIsolationLevelStatement:
		w.put("SET TRANSACTION ISOLATION LEVEL", spell(levels, s.Level))
	case *ast.SetCommandStatement:
		w.put("SET")
		list(w, s.Commands, func(c ast.SetCommand) {
			g, ok := c.(*ast.GeneralSetCommand)
			if ok && g.CommandType == "LockTimeout" {
				w.put("LOCK_TIMEOUT")
				w.scalar(g.Parameter)
				return
			}
			if !ok || g.CommandType != "DeadlockPriority" {
				fail("SET command %T", c)
			}
			level, ok := g.Parameter.(*ast.IdentifierLiteral)
			if !ok || level.Value != "LOW" {
				fail("DEADLOCK_PRIORITY other than LOW")
			}
			w.put("DEADLOCK_PRIORITY LOW")
		})
	case *ast.SetRowCountStatement:
		w.put("SET ROWCOUNT")
		w.scalar(s.NumberRows)
	case *ast.SetTextSizeStatement:
		w.put("SET TEXTSIZE")
		w.scalar(s.TextSize)
	case *ast.SetVariableStatement:
		w.put("SET", s.Variable.Name, spell(assignments, s.AssignmentKind))
		w.scalar(s.Expression)
	case *ast.DeclareVariableStatement:
		w.put("DECLARE")
		list(w, s.Declarations, func(d *ast.DeclareVariableElement) {
			w.put(d.VariableName.Value)
			w.dataType(d.DataType)
			if d.Value != nil {
				w.put("=")
				w.scalar(d.Value)
			}
		})
	case *ast.DeclareTableVariableStatement:
		w.put("DECLARE", s.Body.VariableName.Value, "TABLE (")
		list(w, s.Body.Definition.ColumnDefinitions, w.column)
		for _, c := range s.Body.Definition.TableConstraints {
			w.put(",")
			w.namelessKey(c)
		}
		w.put(")")
	case *ast.BeginTransactionStatement:
		w.put("BEGIN TRANSACTION")
	case *ast.CommitTransactionStatement:
		w.put("COMMIT TRANSACTION", spell(durability, s.DelayedDurabilityOption))
	case *ast.IfStatement:
		w.put("IF")
		w.boolean(s.Predicate)
		w.statement(s.ThenStatement)
		if s.ElseStatement != nil {
			w.put("ELSE")
			w.statement(s.ElseStatement)
		}
		return // its statements end themselves
	case *ast.WhileStatement:
		w.put("WHILE")
		w.boolean(s.Predicate)
		w.statement(s.Statement)
		return
	case *ast.BreakStatement:
		w.put("BREAK")
	case *ast.WaitForStatement:
		if s.WaitForOption != "Delay" {
			fail("WAITFOR %s", s.WaitForOption)
		}
		w.put("WAITFOR DELAY")
		w.scalar(s.Parameter)
	case *ast.BeginEndBlockStatement:
		w.put("BEGIN")
		if len(s.StatementList.Statements) == 0 {
			fail("empty block")
		}
		for _, inner := range s.StatementList.Statements {
			w.statement(inner)
		}
		w.put("END")
	case *ast.TryCatchStatement:
		w.block("TRY", s.TryStatements)
		w.block("CATCH", s.CatchStatements)
	case *ast.ThrowStatement:
		w.put("THROW")
		if s.ErrorNumber == nil {
			break
		}
		w.scalar(s.ErrorNumber)
		w.put(",")
		w.scalar(s.Message)
		w.put(",")
		w.scalar(s.State)
	case *ast.ExecuteStatement:
		w.execute(s.ExecuteSpecification)
	case *ast.SelectStatement:
		w.with(s.WithCtesAndXmlNamespaces)
		w.query(s.QueryExpression)
		w.options(s.OptimizerHints)
	case *ast.InsertStatement:
		w.with(s.WithCtesAndXmlNamespaces)
		w.insert(s.InsertSpecification)
		w.options(s.OptimizerHints)
	case *ast.UpdateStatement:
		w.with(s.WithCtesAndXmlNamespaces)
		w.update(s.UpdateSpecification)
		w.options(s.OptimizerHints)
	case *ast.DeleteStatement:
		w.with(s.WithCtesAndXmlNamespaces)
		w.delete(s.DeleteSpecification)
		w.options(s.OptimizerHints)
	case *ast.CreateSequenceStatement:
		w.sequence(s)
	case *ast.DropSequenceStatement:
		w.put("DROP SEQUENCE")
		list(w, s.Objects, w.object)
	case *ast.DropViewStatement:
		w.put("DROP VIEW")
		w.ifExists(s.IsIfExists)
		list(w, s.Objects, w.object)
	case *ast.DropProcedureStatement:
		w.put("DROP PROCEDURE")
		w.ifExists(s.IsIfExists)
		list(w, s.Objects, w.object)
	case *ast.DropTableStatement:
		w.put("DROP TABLE")
		list(w, s.Objects, w.object)
	case *ast.CreateTableStatement:
		w.put("CREATE TABLE")
		w.object(s.SchemaObjectName)
		w.put("(")
		list(w, s.Definition.ColumnDefinitions, w.column)
		for _, c := range s.Definition.TableConstraints {
			w.put(",")
			w.constraint(c)
		}
		w.put(")")
	case *ast.CreateIndexStatement:
		w.index(s)
	case *ast.AlterTableAddTableElementStatement:
		w.put("ALTER TABLE")
		w.object(s.SchemaObjectName)
		w.put("ADD")
		list(w, s.Definition.ColumnDefinitions, w.column)
	case *ast.AlterTableSetStatement:
		w.put("ALTER TABLE")
		w.object(s.SchemaObjectName)
		w.put("SET (")
		list(w, s.Options, func(o ast.TableOption) {
			l, ok := o.(*ast.LockEscalationTableOption)
			if !ok {
				fail("table option %T", o)
			}
			w.put("LOCK_ESCALATION =", spell(escalations, l.Value))
		})
		w.put(")")
	default:
		fail("statement %T", s)
	}
	w.put(";")
}

// block writes one of the two blocks of a TRY.
func (w *writer) block(kind string, list *ast.StatementList) {
	w.put("BEGIN", kind)
	if list == nil || len(list.Statements) == 0 {
		fail("empty %s", kind)
	}
	for _, inner := range list.Statements {
		w.statement(inner)
	}
	w.put("END", kind)
}

func (w *writer) execute(s *ast.ExecuteSpecification) {
	w.put("EXEC")
	if s.Variable != nil {
		w.put(s.Variable.Name, "=")
	}
	p, ok := s.ExecutableEntity.(*ast.ExecutableProcedureReference)
	if !ok {
		fail("EXEC of %T", s.ExecutableEntity)
	}
	name := p.ProcedureReference.ProcedureReference.Name
	parameters, ok := procedures[name.BaseIdentifier.Value]
	if !ok {
		fail("unknown procedure %s", name.BaseIdentifier.Value)
	}
	w.object(name)
	list(w, p.Parameters, func(a *ast.ExecuteParameter) {
		if !slices.Contains(parameters, a.Variable.Name) {
			fail("%s has no parameter %s", name.BaseIdentifier.Value, a.Variable.Name)
		}
		w.put(a.Variable.Name, "=")
		w.scalar(a.ParameterValue)
	})
}

func (w *writer) insert(s *ast.InsertSpecification) {
	w.put("INSERT INTO")
	switch target := s.Target.(type) {
	case *ast.NamedTableReference:
		if target.Alias != nil {
			fail("INSERT target with an alias")
		}
		w.table(target)
		targetHints(target)
	case *ast.VariableTableReference:
		w.put(target.Variable.Name)
	default:
		fail("INSERT into %T", s.Target)
	}
	w.put("(")
	list(w, s.Columns, w.columnRef)
	w.put(")")
	w.output(s.OutputClause, s.OutputIntoClause)
	switch source := s.InsertSource.(type) {
	case *ast.SelectInsertSource:
		w.query(source.Select)
	case *ast.ValuesInsertSource:
		w.put("VALUES")
		list(w, source.RowValues, w.row)
	default:
		fail("INSERT source %T", source)
	}
}

func (w *writer) update(s *ast.UpdateSpecification) {
	w.put("UPDATE")
	w.top(s.TopRowFilter)
	w.target(s.Target)
	w.put("SET")
	list(w, s.SetClauses, func(c ast.SetClause) {
		a, ok := c.(*ast.AssignmentSetClause)
		if !ok || a.Variable != nil {
			fail("SET clause %T", c)
		}
		w.columnRef(a.Column)
		w.put(spell(assignments, a.AssignmentKind))
		w.scalar(a.NewValue)
	})
	w.output(s.OutputClause, s.OutputIntoClause)
	w.from(s.FromClause)
	w.where(s.WhereClause)
}

func (w *writer) delete(s *ast.DeleteSpecification) {
	w.put("DELETE")
	w.top(s.TopRowFilter)
	w.target(s.Target)
	w.output(s.OutputClause, s.OutputIntoClause)
	w.from(s.FromClause)
	w.where(s.WhereClause)
}

func (w *writer) target(t ast.TableReference) {
	named, ok := t.(*ast.NamedTableReference)
	if !ok {
		fail("target %T", t)
	}
	w.table(named)
	targetHints(named)
}

func (w *writer) output(o *ast.OutputClause, into *ast.OutputIntoClause) {
	if into != nil {
		w.put("OUTPUT")
		list(w, into.SelectColumns, w.element)
		w.put("INTO")
		w.target(into.IntoTable)
		w.put("(")
		list(w, into.IntoTableColumns, w.columnRef)
		w.put(")")
	}
	if o != nil {
		w.put("OUTPUT")
		list(w, o.SelectColumns, w.element)
	}
}

func (w *writer) options(hints []ast.OptimizerHintBase) {
	if len(hints) == 0 {
		return
	}
	w.put("OPTION (")
	list(w, hints, func(h ast.OptimizerHintBase) {
		switch h := h.(type) {
		case *ast.OptimizerHint:
			w.put(spell(queryHints, h.HintKind))
		case *ast.OptimizeForOptimizerHint:
			w.put("OPTIMIZE FOR (")
			list(w, h.Pairs, func(p *ast.VariableValuePair) {
				w.scalar(p.Variable)
				w.put("=")
				w.scalar(p.Value)
			})
			w.put(")")
		default:
			fail("query hint %T", h)
		}
	})
	w.put(")")
}

func (w *writer) with(c *ast.WithCtesAndXmlNamespaces) {
	if c == nil {
		return
	}
	w.put("WITH")
	list(w, c.CommonTableExpressions, func(e *ast.CommonTableExpression) {
		w.identifier(e.ExpressionName)
		w.put("AS (")
		w.query(e.QueryExpression)
		w.put(")")
	})
}
