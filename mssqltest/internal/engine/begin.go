package engine

import (
	"github.com/sqlc-dev/teesql/ast"

	"github.com/chanq/chanq/mssqltest/internal/tds"
)

// beginUnseen opens the transaction that IMPLICIT_TRANSACTIONS begins before the first statement that accesses a table,
// and before BEGIN TRANSACTION, which then is the second level.
func (s *Session) beginUnseen() {
	if s.set.implicit && s.trancount == 0 && s.tx == nil {
		s.begin("")
		s.unseen = true
	}
}

// begin, commit and rollbackAll implement BEGIN TRANSACTION and its ends.

func (s *Session) begin(name string) {
	if s.trancount++; s.trancount == 1 {
		s.tx = s.newTxn()
		s.tx.name = name
		s.sentResult(s.out.TxBegan(s.tx.id))
	}
}

func (s *Session) commit() error {
	switch {
	case s.trancount == 0:
		return sqlError(3902, "The COMMIT TRANSACTION request has no corresponding BEGIN TRANSACTION.")
	case s.trancount > 1:
		s.trancount--
		return nil
	}
	tx := s.tx
	s.tx, s.trancount = nil, 0
	tx.commit(s.e.db)
	s.sentResult(s.out.TxCommitted(tx.id))
	return nil
}

func (s *Session) rollbackAll() {
	if s.tx == nil {
		return
	}
	tx := s.tx
	explicit := s.trancount > 0
	s.tx, s.trancount = nil, 0
	tx.rollback(s.e.db)
	if explicit && s.out != nil {
		s.sentResult(s.out.TxRolledBack(tx.id))
	}
}

// transaction handles a request of the transaction manager.
func (s *Session) transaction(r tds.TxRequest) error {
	switch r.Op {
	case tds.TxBegin:
		if r.Isolation > 0 {
			s.set.level = isolation(r.Isolation)
		}
		s.begin(r.Name)
		return nil
	case tds.TxCommit:
		return s.commit()
	case tds.TxRollback:
		return s.rollback(r.Name)
	case tds.TxSave:
		return s.save(r.Name)
	}
	return errUnsupported("transaction request")
}

// rollback ends the whole transaction, or undoes all changes after the savepoint of that name, in which case the locks
// stay.
func (s *Session) rollback(name string) error {
	switch {
	case s.trancount == 0:
		return sqlError(3903, "The ROLLBACK TRANSACTION request has no corresponding BEGIN TRANSACTION.")
	case name == "" || name == s.tx.name:
		s.rollbackAll()
		return nil
	}
	for i := len(s.tx.saves) - 1; i >= 0; i-- {
		if s.tx.saves[i].name == name {
			s.tx.rollbackTo(s.tx.saves[i].mark)
			s.tx.saves = s.tx.saves[:i+1]
			return nil
		}
	}
	return sqlError(6401, "Cannot roll back %s. No transaction or savepoint of that name was found.", name)
}

// save is SAVE TRANSACTION. If a name is used twice, it means the later savepoint.
func (s *Session) save(name string) error {
	if s.trancount == 0 {
		return sqlError(628, "Cannot issue SAVE TRANSACTION when there is no active transaction.")
	}
	s.tx.saves = append(s.tx.saves, savepoint{name, s.tx.mark()})
	return nil
}

// nameOfTransaction returns the name in a statement that begins, saves or ends a transaction.
func nameOfTransaction(f *frame, n *ast.IdentifierOrValueExpression) string {
	switch {
	case n == nil:
		return ""
	case n.Identifier != nil:
		return n.Identifier.Value
	}
	if v, ok := n.ValueExpression.(*ast.VariableReference); ok {
		text, _ := f.vars[f.batch.variable(v.Name).at].(string)
		return text
	}
	return n.Value
}
