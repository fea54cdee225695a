package engine

import (
	"errors"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// prepared is a statement to which sp_prepare or sp_prepexec assigned a handle. Handles belong to the session and end
// with it, or with its reset.
type prepared struct{ text, declaration string }

// keep assigns a handle to a statement, in the first argument.
func (s *Session) keep(p prepared, args []argument) {
	if s.prepared == nil {
		s.prepared = map[int64]prepared{}
	}
	s.lastHandle++
	s.prepared[s.lastHandle] = p
	args[0].val, args[0].typ = s.lastHandle, typeInt
}

// toPrepare reads the arguments that sp_prepare and sp_prepexec have in common. For a text that cannot be compiled it
// returns the error, followed by 8180.
func (s *Session) toPrepare(proc string, args []argument) (p prepared, err error) {
	if len(args) < 3 {
		return p, errMissingParam(proc, []string{"@handle", "@params", "@stmt"}[len(args)])
	}
	if p.declaration, err = unicode(proc, args, 1, "@params"); err != nil {
		return p, err
	}
	if p.text, err = unicode(proc, args, 2, "@stmt", "@statement"); err != nil {
		return p, err
	}
	if _, err = s.e.batch(p.text, p.declaration); err != nil {
		if e, ok := err.(*sqltype.Error); ok {
			s.report(e)
			err = sqlError(8180, "Statement(s) could not be prepared.")
		}
	}
	return p, err
}

// prepare is sp_prepare: it returns a handle, and the columns of the statement's result.
func (s *Session) prepare(args []argument) (int64, error) {
	p, err := s.toPrepare("sp_prepare", args)
	if err != nil {
		return 0, err
	}
	if err := s.describe(p); err != nil {
		return 0, err
	}
	s.keep(p, args)
	return 0, nil
}

// describe runs a statement as under FMTONLY, with NULL for every parameter.
func (s *Session) describe(p prepared) error {
	b, err := s.e.batch(p.text, p.declaration)
	if err != nil {
		return err
	}
	f := s.newFrame(b)
	f.inProc = true
	was := s.set
	s.set.fmtOnly = true
	err = s.scoped(f)
	s.set = was
	if errors.Is(err, errAbort) {
		return sqlError(8180, "Statement(s) could not be prepared.")
	}
	return err
}

// prepareAndExecute is sp_prepexec.
func (s *Session) prepareAndExecute(args []argument) (int64, error) {
	p, err := s.toPrepare("sp_prepexec", args)
	if err != nil {
		return 0, err
	}
	s.keep(p, args)
	_, err = s.runDynamic(p.text, p.declaration, args[3:])
	return 0, err
}

// handled finds the statement of the handle that is the first argument.
func (s *Session) handled(proc string, args []argument) (handle int64, p prepared, err error) {
	if len(args) == 0 {
		return 0, p, errMissingParam(proc, "@handle")
	}
	v, err := convert(args[0].val, args[0].typ, typeInt, 0)
	if err != nil {
		return 0, p, err
	}
	handle, _ = v.(int64)
	p, known := s.prepared[handle]
	if !known {
		err = sqlError(8179, "Could not find prepared statement with handle %d.", handle)
	}
	return handle, p, err
}

// executePrepared is sp_execute.
func (s *Session) executePrepared(args []argument) (int64, error) {
	_, p, err := s.handled("sp_execute", args)
	if err != nil {
		return 0, err
	}
	_, err = s.runDynamic(p.text, p.declaration, args[1:])
	return 0, err
}

// unprepare is sp_unprepare.
func (s *Session) unprepare(args []argument) (int64, error) {
	handle, _, err := s.handled("sp_unprepare", args)
	if err != nil {
		return 0, err
	}
	delete(s.prepared, handle)
	return 0, nil
}
