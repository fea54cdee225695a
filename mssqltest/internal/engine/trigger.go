package engine

import (
	"github.com/sqlc-dev/teesql/ast"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// trigger is an AFTER trigger. Its batch has two table variables, inserted and deleted.
type trigger struct {
	name    string
	actions map[string]bool // insert, update, delete
	body    *batch
	made    options
}

func (x *exec) createTrigger(n *node, st *ast.CreateTriggerStatement) error {
	if st.TriggerType == "InsteadOf" {
		return errUnsupported("INSTEAD OF")
	}
	t, err := x.tableFor(st.TriggerObject.Name)
	if err != nil {
		return err
	}
	tr := &trigger{name: st.Name.BaseIdentifier.Value, actions: map[string]bool{}, made: x.s.set.options & madeWith}
	for _, a := range st.TriggerActions {
		tr.actions[lower(a.TriggerActionType)] = true
	}
	tr.body = &batch{text: n.batch.text, names: map[string]*variable{}, stats: x.s.e.queryStats(batchKey{text: t.schema + "." + tr.name})}
	for _, name := range []string{"inserted", "deleted"} {
		if err := tr.body.declare(&variable{name: name, table: &ast.TableDefinition{}, like: t}); err != nil {
			return err
		}
	}
	if err := tr.body.compile(statements(st.StatementList)); err != nil {
		return err
	}
	was := t.triggers
	undo, err := x.s.e.db.add(&object{schema: t.schema, name: tr.name, trigger: tr})
	if err != nil {
		return err
	}
	t.triggers = append(append([]*trigger(nil), was...), tr)
	x.undo(func() {
		t.triggers = was
		undo()
	})
	return nil
}

// changes are the rows of a statement for the triggers of its table.
type changes struct{ inserted, deleted []Row }

// hasTrigger reports whether an action runs a trigger.
func (t *table) hasTrigger(action string) bool {
	for _, tr := range t.triggers {
		if tr.actions[action] {
			return true
		}
	}
	return false
}

// fire runs the triggers of a statement, once for all of its rows and in its transaction. In a trigger XACT_ABORT is ON ("SET XACT_ABORT
// (Transact-SQL)"). If a trigger rolls back the transaction, the batch ends with error 3609; if it fails, with its own error.
func (x *exec) fire(t *table, action string, c changes) error {
	s := x.s
	for _, tr := range t.triggers {
		if !tr.actions[action] {
			continue
		}
		if s.nest == maxNest {
			return errNested()
		}
		f := s.newFrame(tr.body)
		f.inProc, f.proc, f.made = true, tr.name, tr.made
		for i, rows := range [][]Row{c.inserted, c.deleted} {
			shape, err := s.e.db.shape(tr.body.tables[i])
			if err != nil {
				return err
			}
			f.tables[i] = shape.instance()
			for _, row := range rows {
				if _, err := x.insertRow(f.tables[i], row); err != nil {
					return err
				}
			}
		}
		was, autocommit := s.set, s.trancount == 0
		s.set.xactAbort = true
		s.set.options = s.set.options&^madeWith | tr.made
		if autocommit {
			s.trancount = 1
		}
		s.nest++
		_, err := s.runFrame(f)
		s.nest--
		s.set = was
		if s.tx != x.tx {
			if err == nil {
				err = sqlError(3609, "The transaction ended in the trigger. The batch has been aborted.")
			}
			return err
		}
		if autocommit {
			s.trancount = 0
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func errNested() *sqltype.Error {
	return sqlError(217, "Maximum stored procedure, function, trigger, or view nesting level exceeded (limit 32).")
}
