package engine

import (
	"errors"
	"slices"
	"strings"

	"github.com/sqlc-dev/teesql/ast"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
	"github.com/chanq/chanq/mssqltest/internal/tds"
)

// argument is one argument of a procedure call.
type argument struct {
	name   string // with @; empty if given by position
	val    sqltype.Value
	typ    sqltype.Type
	output bool
	into   *variable // a variable of the caller that receives the output
}

// maxParams is the limit of parameters of one call; sp_executesql's statement and declaration count.
const maxParams = 2100

// maxNest is the limit of nested calls.
const maxNest = 32

func (s *Session) runRPC(r *tds.Request) error {
	if len(r.Params) > maxParams {
		return sqlError(8003, "The incoming request has too many parameters. The server supports a maximum of 2100 parameters. Reduce the number of parameters and resend the request.")
	}
	args := make([]argument, len(r.Params))
	for i, p := range r.Params {
		args[i] = argument{name: p.Name, val: p.Value, typ: p.Type, output: p.Output}
	}
	schema, name := splitName(r.Proc)
	code, err := s.call(&frame{batch: &batch{}}, schema, name, args)
	if errors.Is(err, errAbort) {
		return nil
	}
	if e, ok := err.(*sqltype.Error); ok && s.ctx.Err() == nil {
		located(e, 1)
		s.report(e)
		if s.set.xactAbort && s.trancount > 0 {
			s.rollbackAll()
		}
		code = -6
	} else if err != nil {
		return err
	}
	s.sentResult(s.out.ReturnStatus(int32(code)))
	for i, a := range args {
		if a.output {
			s.sentResult(s.out.ReturnValue(i, tds.Param{Name: a.name, Output: true, Type: a.typ, Value: a.val}))
		}
	}
	return nil
}

func splitName(full string) (schema, name string) {
	var part strings.Builder
	quoted := false
	for i := 0; i < len(full); i++ {
		switch c := full[i]; {
		case c == '[' && !quoted:
			quoted = true
		case c == ']' && quoted && strings.HasPrefix(full[i+1:], "]"):
			part.WriteByte(c)
			i++
		case c == ']' && quoted:
			quoted = false
		case c == '.' && !quoted:
			schema = part.String()
			part.Reset()
		default:
			part.WriteByte(c)
		}
	}
	return schema, part.String()
}

// execute runs EXEC.
func (s *Session) execute(f *frame, n *node, st *ast.ExecuteStatement) error {
	spec := st.ExecuteSpecification
	if spec.LinkedServer != nil || spec.ExecuteContext != nil {
		return errUnsupported("EXECUTE AT or AS")
	}
	vals, types, err := s.evaluate(f, n)
	if err != nil {
		return err
	}
	switch e := spec.ExecutableEntity.(type) {
	case *ast.ExecutableProcedureReference:
		ref := e.ProcedureReference.ProcedureReference
		if ref == nil {
			return errUnsupported("EXEC @name")
		}
		args := make([]argument, len(e.Parameters))
		for i, p := range e.Parameters {
			a := argument{val: vals[i], typ: types[i], output: p.IsOutput}
			if p.Variable != nil {
				a.name = p.Variable.Name
			}
			if v, ok := p.ParameterValue.(*ast.VariableReference); ok && p.IsOutput {
				a.into = f.batch.variable(v.Name)
			}
			args[i] = a
		}
		schema := ""
		if ref.Name.SchemaIdentifier != nil {
			schema = ref.Name.SchemaIdentifier.Value
		}
		code, err := s.call(f, schema, ref.Name.BaseIdentifier.Value, args)
		if err != nil {
			return err
		}
		for _, a := range args {
			if a.into == nil {
				continue
			}
			if f.vars[a.into.at], err = convert(a.val, a.typ, a.into.typ, 0); err != nil {
				return err
			}
		}
		if spec.Variable != nil {
			if v := f.batch.variable(spec.Variable.Name); v != nil {
				f.vars[v.at], err = convert(code, typeInt, v.typ, 0)
			}
		}
		return err
	}
	return errUnsupportedAt(spec.ExecutableEntity)
}

// call runs a procedure of the system or of the database. It sets the output arguments.
func (s *Session) call(f *frame, schema, name string, args []argument) (int64, error) {
	if schema == "" || strings.EqualFold(schema, "sys") {
		if p := systemProcs[lower(name)]; p != nil {
			return p(s, args)
		}
	}
	if schema == "" {
		schema = "dbo"
	}
	o := s.e.db.object(schema, name)
	if o == nil || o.proc == nil {
		if system := lower(name); strings.HasPrefix(system, "sp_") || strings.HasPrefix(system, "xp_") {
			return 0, errUnsupported("the procedure " + name)
		}
		full := name
		if schema != "dbo" {
			full = schema + "." + name
		}
		return 0, errNoProc(full)
	}
	if err := s.mayExecute(o); err != nil {
		return 0, err
	}
	b := o.proc.body
	sub := s.newFrame(b)
	sub.inProc, sub.proc, sub.made = true, o.name, o.proc.made
	if err := s.bind(sub, o.name, args); err != nil {
		return 0, err
	}
	if err := s.scoped(sub); err != nil {
		return 0, err
	}
	collectOutput(sub, args)
	return sub.status, nil
}

// bind sets the parameters of a frame.
func (s *Session) bind(f *frame, proc string, args []argument) error {
	given := make([]bool, len(f.batch.params))
	for i := range args {
		a := &args[i]
		at := i
		if a.name != "" {
			var ok bool
			if at, ok = f.batch.byName[lower(a.name)]; !ok {
				return sqlError(8145, "%s is not a parameter for procedure %s.", a.name, proc)
			}
		}
		if at >= len(f.batch.params) {
			return sqlError(8144, "Procedure or function %s has too many arguments specified.", proc)
		}
		if given[at] {
			return sqlError(8143, "Parameter '%s' was supplied multiple times.", a.name)
		}
		p := f.batch.params[at]
		a.name = p.v.name
		given[at] = true
		if a.output && !p.output {
			return sqlError(8162, "The formal parameter \"%s\" was not declared as an OUTPUT parameter, but the actual parameter passed in requested output.", p.v.name)
		}
		if err := checkImplicit(a.typ, p.v.typ); err != nil {
			return err
		}
		v, fits, err := store(a.val, a.typ, p.v.typ)
		if err != nil {
			return asParameter(err, a.typ, p.v.typ)
		}
		if !fits {
			return sqlError(8152, "String or binary data would be truncated.")
		}
		f.vars[p.v.at] = v
	}
	for i, p := range f.batch.params {
		if given[i] {
			continue
		}
		switch {
		case p.byDefault == nil && proc == "sp_executesql":
			return sqlError(8178, "The parameterized query '%s' expects the parameter '%s', which was not supplied.", cutText(f.batch.text, sqltype.NVarChar, 100), p.v.name)
		case p.byDefault == nil:
			return errMissingParam(proc, p.v.name)
		default:
			c := &compiler{db: s.e.db, batch: f.batch}
			sc, err := c.scalar(p.byDefault)
			if err != nil {
				return err
			}
			v, err := cast(sc, p.v.typ, 0).eval(&exec{s: s, f: f})
			if err != nil {
				return err
			}
			f.vars[p.v.at] = v
		}
	}
	return nil
}

// asParameter changes the text of a failed conversion of a parameter to the server's.
func asParameter(err error, from, to sqltype.Type) error {
	if e, ok := err.(*sqltype.Error); ok && e.Number == 245 {
		return sqlError(8114, "Error converting data type %s to %s.", kindName(from.Kind), kindName(to.Kind))
	}
	return err
}

func collectOutput(f *frame, args []argument) {
	for i := range args {
		if v := f.batch.variable(args[i].name); args[i].output && v != nil && v.table == nil {
			args[i].val, args[i].typ = f.vars[v.at], v.typ
		}
	}
}

// scoped runs a frame as a procedure runs: SET options are restored afterwards, and the count of transactions must be
// unchanged.
func (s *Session) scoped(f *frame) error {
	if s.nest == maxNest {
		return errNested()
	}
	was, count := s.set, s.trancount
	s.nest++
	s.unseen = false
	if f.proc != "" {
		s.set.options = s.set.options&^madeWith | f.made
	}
	_, err := s.runFrame(f)
	s.nest--
	priority := s.set.deadlockPriority
	s.set = was
	if s.tx != nil && priority != was.deadlockPriority {
		s.tx.owner.SetDeadlockPriority(was.deadlockPriority)
	}
	if err != nil {
		return err
	}
	if s.unseen && count == 0 && s.trancount == 1 {
		return nil // drivers that turn off autocommit with IMPLICIT_TRANSACTIONS rely on this
	}
	if s.trancount != count {
		return sqlError(266, "Transaction count after EXECUTE indicates a mismatching number of BEGIN and COMMIT statements. Previous count = %d, current count = %d.", count, s.trancount)
	}
	return nil
}

// runDynamic runs a text with separate variables.
func (s *Session) runDynamic(text, declaration string, args []argument) (*frame, error) {
	b, err := s.e.batch(text, declaration)
	if err != nil {
		return nil, err
	}
	b.stats.add(Cost{Requests: 1})
	f := s.newFrame(b)
	f.inProc = true
	if err := s.bind(f, "sp_executesql", args); err != nil {
		return nil, err
	}
	if err := s.scoped(f); err != nil {
		return nil, err
	}
	collectOutput(f, args)
	return f, nil
}

var systemProcs map[string]func(*Session, []argument) (int64, error)

func init() {
	systemProcs = map[string]func(*Session, []argument) (int64, error){
		"sp_executesql":     (*Session).executeSQL,
		"sp_getapplock":     (*Session).getAppLock,
		"sp_releaseapplock": (*Session).releaseAppLock,
		"sp_prepare":        (*Session).prepare,
		"sp_execute":        (*Session).executePrepared,
		"sp_prepexec":       (*Session).prepareAndExecute,
		"sp_unprepare":      (*Session).unprepare,
	}
}

// sameName compares the name of an argument with that of a system procedure's parameter. Some clients omit the @.
func sameName(given, parameter string) bool {
	return strings.EqualFold(strings.TrimPrefix(given, "@"), strings.TrimPrefix(parameter, "@"))
}

// unicode returns the text at a position among the arguments of a system procedure; names are the names of that
// parameter.
func unicode(proc string, args []argument, at int, names ...string) (string, error) {
	if at >= len(args) {
		return "", nil
	}
	a := args[at]
	if a.name != "" && !slices.ContainsFunc(names, func(n string) bool { return sameName(a.name, n) }) {
		return "", sqlError(8145, "%s is not a parameter for procedure %s.", a.name, proc)
	}
	if a.val == nil {
		return "", nil
	}
	if !isNational(a.typ.Kind) {
		return "", sqlError(214, "Procedure expects parameter '%s' of type 'ntext/nchar/nvarchar'.", names[0])
	}
	return a.val.(string), nil
}

func (s *Session) executeSQL(args []argument) (int64, error) {
	if len(args) == 0 {
		return 0, errMissingParam("sp_executesql", "@statement")
	}
	statement, err := unicode("sp_executesql", args, 0, "@statement", "@stmt")
	if err != nil {
		return 0, err
	}
	declaration, err := unicode("sp_executesql", args, 1, "@params")
	if err != nil {
		return 0, err
	}
	_, err = s.runDynamic(statement, declaration, args[min(2, len(args)):])
	return 0, err
}
