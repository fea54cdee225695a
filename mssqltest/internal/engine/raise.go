package engine

import (
	"fmt"
	"strings"

	"github.com/sqlc-dev/teesql/ast"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// runReturn ends a batch, a procedure or a trigger. A procedure has a status, which is not NULL.
func (s *Session) runReturn(f *frame, n *node, st *ast.ReturnStatement) error {
	if st.Expression == nil {
		return nil
	}
	if f.proc == "" {
		return severity(15, 178, "A RETURN statement with a return value cannot be used in this context.")
	}
	v, t, err := s.evaluate(f, n)
	if err != nil {
		return err
	}
	status, err := convert(v[0], t[0], typeInt, 0)
	if err != nil {
		return err
	}
	if status == nil {
		s.report(&sqltype.Error{Number: 282, State: 1, Class: 10, Line: n.line, Proc: f.proc, Message: "The '" + f.proc +
			"' procedure attempted to return a status of NULL, which is not allowed. A status of 0 will be returned instead."})
		return nil
	}
	f.status = status.(int64)
	return nil
}

// raise is RAISERROR with a text. It does not roll back, even under XACT_ABORT ("RAISERROR (Transact-SQL)").
func (s *Session) raise(f *frame, n *node, st *ast.RaiseErrorStatement) error {
	if s.set.xactAbort && s.tx != nil && s.tries > 0 {
		return errUnsupported("RAISERROR within TRY in a transaction under XACT_ABORT ON")
	}
	if option := strings.ToUpper(st.RaiseErrorOptions); option != "" && option != "NONE" && option != "NOWAIT" {
		return errUnsupported("RAISERROR WITH " + option)
	}
	v, t, err := s.evaluate(f, n)
	if err != nil {
		return err
	}
	text, ok := v[0].(string)
	if !ok {
		return errUnsupported("RAISERROR of a number")
	}
	level, ok1 := v[1].(int64)
	state, ok2 := v[2].(int64)
	if !ok1 || !ok2 {
		return errUnsupported("RAISERROR with a severity or a state that is no integer")
	}
	if level > 18 {
		return errUnsupported("RAISERROR with a severity above 18")
	}
	if text, err = formatted(text, v[3:], t[3:]); err != nil {
		return err
	}
	e := &sqltype.Error{
		Number: 50000, State: uint8(min(max(state, 0), 255)), Class: uint8(max(level, 0)), Message: text,
		Line: n.line, Proc: f.proc,
	}
	if level > 10 && s.catches(e) {
		return caught{e}
	}
	s.report(e)
	return nil
}

// formatted puts the arguments of RAISERROR into its text.
func formatted(text string, v []sqltype.Value, t []sqltype.Type) (string, error) {
	var out strings.Builder
	for at := 0; ; {
		before, rest, found := strings.Cut(text, "%")
		out.WriteString(before)
		if !found {
			return out.String(), nil
		}
		verb := ""
		if rest != "" {
			verb, text = rest[:1], rest[1:]
		}
		switch verb {
		case "%":
			out.WriteString("%")
			continue
		case "s", "d", "i", "u":
		default:
			return "", errUnsupported("RAISERROR with %" + verb)
		}
		if at == len(v) || v[at] == nil {
			out.WriteString("(null)")
		} else if number := isInteger(t[at].Kind); number == (verb == "s") {
			return "", severity(16, 2786, "The data type of substitution parameter %d does not match the expected type of the format specification.", at+1)
		} else {
			fmt.Fprint(&out, v[at])
		}
		at++
	}
}
