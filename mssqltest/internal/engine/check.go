package engine

import (
	"fmt"

	"github.com/sqlc-dev/teesql/ast"
)

// checkConstraint is a CHECK that every row of a table must satisfy.
type checkConstraint struct {
	name   string
	column string // the column whose definition contains it; empty for a constraint of the table
	holds  *cond
}

// unmade is a CHECK as it was written, in the definition of a column or of the table.
type unmade struct {
	def    *ast.CheckConstraintDefinition
	column string
}

// checksOf returns the CHECKs of a column's definition, which are compiled when all columns are known.
func checksOf(d *ast.ColumnDefinition) (list []unmade) {
	for _, k := range d.Constraints {
		if check, ok := k.(*ast.CheckConstraintDefinition); ok {
			list = append(list, unmade{check, d.ColumnIdentifier.Value})
		}
	}
	return list
}

// defineCheck compiles a CHECK over the columns of t.
func (c *compiler) defineCheck(t *table, k unmade) error {
	own := &compiler{db: c.db, batch: c.batch, source: c.source, scope: &scope{}}
	src, _, err := own.base(t, tableHints{}, false)
	if err != nil {
		return err
	}
	own.scope.sources = []*source{src}
	holds, err := own.cond(k.def.CheckCondition)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("CK__%s__%08X", t.name, len(t.checks))
	if k.def.ConstraintIdentifier != nil {
		name = k.def.ConstraintIdentifier.Value
	}
	t.checks = append(t.checks[:len(t.checks):len(t.checks)], &checkConstraint{name, k.column, holds})
	return nil
}

// check returns error 547 for a row for which a CHECK is false. An unknown result, as of a comparison with NULL,
// passes.
func (x *exec) check(t *table, row Row, verb string) error {
	for _, k := range t.checks {
		is, err := k.holds.eval(&exec{slots: []slot{{row: row}}})
		if err != nil {
			return err
		}
		if is == isFalse {
			return errCheck(t, k, verb)
		}
	}
	return nil
}
