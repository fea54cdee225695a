package engine

import (
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/sqlc-dev/teesql/ast"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// sequence draws numbers, one after the other. No rollback returns one.
type sequence struct {
	start, most int64
	given       atomic.Int64 // how many were drawn
}

// current returns the last number drawn, or the first that will be.
func (q *sequence) current() int64 { return q.start + max(0, q.given.Load()-1) }

// createSequence creates a sequence AS bigint with INCREMENT BY 1 and NO CACHE: as nothing is lost here in a crash, a
// cache would make no difference.
func (x *exec) createSequence(n *node, st *ast.CreateSequenceStatement) error {
	q := &sequence{most: 1<<63 - 1}
	c := &compiler{db: x.s.e.db, batch: n.batch, source: n.batch.text}
	for _, o := range st.SequenceOptions {
		switch o := o.(type) {
		case *ast.DataTypeSequenceOption:
			if t, err := typeOf(o.DataType, 1); err != nil || t != typeBigInt {
				return errUnsupported("CREATE SEQUENCE but AS bigint")
			}
		case *ast.SequenceOption:
			if o.OptionKind != "Cache" {
				return errUnsupported("CREATE SEQUENCE with NO " + o.OptionKind)
			}
		case *ast.ScalarExpressionSequenceOption:
			if o.OptionValue == nil {
				return errUnsupported("CREATE SEQUENCE with " + o.OptionKind)
			}
			sc, err := c.scalar(o.OptionValue)
			if err != nil {
				return err
			}
			v, err := cast(sc, typeBigInt, 0).eval(&exec{})
			if err != nil {
				return err
			}
			number, _ := v.(int64)
			switch strings.ToUpper(o.OptionKind) {
			case "START":
				q.start = number
			case "MAXVALUE":
				q.most = number
			case "MINVALUE":
			case "INCREMENT":
				if number != 1 {
					return errUnsupported("INCREMENT but 1")
				}
			default:
				return errUnsupported("CREATE SEQUENCE with " + o.OptionKind)
			}
		default:
			return errUnsupported(fmt.Sprintf("%T", o))
		}
	}
	schema, name := nameOf(st.Name)
	undo, err := x.s.e.db.add(&object{schema: schema, name: name, sequence: q})
	if err == nil {
		x.undo(undo)
	}
	return err
}

// nextValue compiles NEXT VALUE FOR. It requires the permission to UPDATE the sequence, except in a procedure or the
// default of a column with the sequence's owner. Creating such a default requires REFERENCES.
func (c *compiler) nextValue(e *ast.NextValueForExpression) (*scalar, error) {
	if e.OverClause != nil {
		return nil, errUnsupported("NEXT VALUE FOR … OVER")
	}
	schema, name := nameOf(e.SequenceName)
	o := c.db.object(schema, name)
	if o == nil || o.sequence == nil {
		return nil, errNoObject(spelled(e.SequenceName))
	}
	q, byDefault := o.sequence, c.maker != nil
	if byDefault && !c.maker.has("REFERENCES", o.schema, o.name) {
		return nil, errDenied("REFERENCES", o.name, c.db.name, o.schema)
	}
	out := derive(typeBigInt, nil, func(x *exec) (sqltype.Value, error) {
		if !byDefault && (x.s.frame == nil || x.s.frame.proc == "") && !x.s.has("UPDATE", o.schema, o.name) {
			return nil, errDenied("UPDATE", o.name, x.s.e.db.name, o.schema)
		}
		number := q.start + q.given.Add(1) - 1
		if number > q.most {
			return nil, sqlError(11728, "The sequence object '%s' has reached its minimum or maximum value. Restart the sequence object to allow new values to be generated.", o.name)
		}
		return number, nil
	})
	out.volatile = true
	return out, nil
}

// sequenceRows returns the rows of the sequences that the user sees.
func sequenceRows(x *exec) ([]Row, error) {
	var out []Row
	for _, o := range x.s.e.db.list() {
		if o.sequence != nil && x.s.sees(o) {
			out = append(out, Row{o.name, int64(o.id), o.sequence.current()})
		}
	}
	return out, nil
}
