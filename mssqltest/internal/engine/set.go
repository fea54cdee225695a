package engine

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/sqlc-dev/teesql/ast"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// settings are what SET changes. Changes inside a procedure end with it.
type settings struct {
	noCount, xactAbort bool
	options            options
	implicit           bool // IMPLICIT_TRANSACTIONS
	fmtOnly            bool
	rowCount           int64
	textSize           int // bytes of a (max) value that a result returns
	level              isolation
	lockTimeout        time.Duration
	deadlockPriority   int
}

// options are the SET options that a filtered index depends on.
type options uint8

const (
	ansiNulls options = 1 << iota
	quotedIdentifier
	concatNullYieldsNull
	ansiWarnings
	ansiPadding
	arithAbort
	numericRoundAbort
)

const (
	// ansiDefaults are the settings that ODBC and similar drivers request at login. ANSI_WARNINGS implies ARITHABORT.
	ansiDefaults = ansiNulls | quotedIdentifier | concatNullYieldsNull | ansiWarnings | ansiPadding
	// madeWith are the options that a procedure keeps from its creation.
	madeWith = ansiNulls | quotedIdentifier
)

// optionNames has the names of the options in the parser, and in error 1934, in its order.
var optionNames = []struct{ parsed, reported string }{
	{"AnsiNulls", "ANSI_NULLS"},
	{"QuotedIdentifier", "QUOTED_IDENTIFIER"},
	{"ConcatNullYieldsNull", "CONCAT_NULL_YIELDS_NULL"},
	{"AnsiWarnings", "ANSI_WARNINGS"},
	{"AnsiPadding", "ANSI_PADDING"},
	{"ArithAbort", "ARITHABORT"},
	{"NumericRoundAbort", "NUMERIC_ROUNDABORT"},
}

// wrong returns the names of the options whose values prevent the use of a filtered index.
func (o options) wrong() (names []string) {
	if o&ansiWarnings != 0 {
		o |= arithAbort
	}
	o ^= numericRoundAbort // must be OFF
	for i, n := range optionNames {
		if o&(1<<i) == 0 {
			names = append(names, n.reported)
		}
	}
	return names
}

const (
	smallTextSize = 4096
	maxTextSize   = math.MaxInt32
)

func (s *Session) defaults() settings {
	set := settings{textSize: smallTextSize, level: readCommitted, lockTimeout: -1}
	if s.login.ODBC {
		set.options, set.textSize = ansiDefaults, maxTextSize
	}
	return set
}

// setStatement runs SET of an option; done is false for other statements.
func (s *Session) setStatement(f *frame, n *node) (done bool, _ error) {
	switch st := n.st.(type) {
	case *ast.PredicateSetStatement:
		for _, name := range strings.Split(st.Options, ",") {
			if err := s.setOption(strings.TrimSpace(name), st.IsOn); err != nil {
				return true, err
			}
		}
		return true, nil
	case *ast.SetTransactionIsolationLevelStatement:
		level, ok := map[string]isolation{
			"ReadUncommitted": readUncommitted, "ReadCommitted": readCommitted, "RepeatableRead": repeatableRead,
			"Serializable": serializable, "Snapshot": snapshot,
		}[st.Level]
		if !ok {
			return true, errSyntaxNear(st.Level)
		}
		s.set.level = level
		s.seen.level.Store(int64(level))
		return true, nil
	case *ast.SetRowCountStatement:
		v, _, err := s.evaluate(f, n)
		if err != nil {
			return true, err
		}
		limit, ok := v[0].(int64)
		if !ok || limit < 0 {
			return true, severity(15, 1015, "An integer of 0 or more is needed after SET ROWCOUNT.")
		}
		s.set.rowCount = limit
		return true, nil
	case *ast.SetTextSizeStatement:
		v, _, err := s.evaluate(f, n)
		if err != nil {
			return true, err
		}
		size, ok := v[0].(int64)
		switch {
		case !ok || size < -1 || size > maxTextSize:
			return true, errSyntaxNear("TEXTSIZE")
		case size == -1:
			size = maxTextSize
		case size == 0:
			size = smallTextSize
		}
		s.set.textSize = int(size)
		return true, nil
	case *ast.SetCommandStatement:
		v, t, err := s.evaluate(f, n)
		if err != nil {
			return true, err
		}
		at := 0
		for _, c := range st.Commands {
			g, ok := c.(*ast.GeneralSetCommand)
			if !ok {
				return true, errUnsupported(fmt.Sprintf("%T", c))
			}
			if err := s.setCommand(g.CommandType, v[at], t[at]); err != nil {
				return true, err
			}
			at++
		}
		return true, nil
	}
	return false, nil
}

func (s *Session) setOption(name string, on bool) error {
	switch name {
	case "NoCount":
		s.set.noCount = on
	case "XactAbort":
		s.set.xactAbort = on
	case "AnsiDefaults":
		s.setOptions(ansiNulls|quotedIdentifier|ansiWarnings|ansiPadding, on)
		s.set.implicit = on
	case "FmtOnly":
		s.set.fmtOnly = on
	case "AnsiNullDfltOn", "AnsiNullDfltOff", "ArithIgnore", "CursorCloseOnCommit", "ForcePlan", "IO", "Time":
	case "ImplicitTransactions":
		s.set.implicit = on
	default:
		for i, n := range optionNames {
			if n.parsed == name {
				s.setOptions(1<<i, on)
				return nil
			}
		}
		return errUnsupported("SET " + name)
	}
	return nil
}

// setOptions changes options; a procedure keeps those of its creation.
func (s *Session) setOptions(o options, on bool) {
	if s.frame.proc != "" {
		o &^= madeWith
	}
	if on {
		s.set.options |= o
	} else {
		s.set.options &^= o
	}
}

func (s *Session) setCommand(name string, v sqltype.Value, t sqltype.Type) error {
	switch name {
	case "LockTimeout":
		n, err := convert(v, t, typeInt, 0)
		if err != nil {
			return err
		}
		s.set.lockTimeout = -1
		if ms, _ := n.(int64); ms >= 0 {
			s.set.lockTimeout = time.Duration(ms) * time.Millisecond
		}
	case "DeadlockPriority":
		if word, ok := v.(string); ok {
			p, known := map[string]int{"LOW": -5, "NORMAL": 0, "HIGH": 5}[strings.ToUpper(word)]
			if !known {
				return errSyntaxNear(word)
			}
			s.set.deadlockPriority = p
		} else {
			return errUnsupported("DEADLOCK_PRIORITY that is a number")
		}
		if s.tx != nil {
			s.tx.owner.SetDeadlockPriority(s.set.deadlockPriority)
		}
	case "Language", "DateFormat", "DateFirst", "ContextInfo", "QueryGovernorCostLimit":
	default:
		return errUnsupported("SET " + name)
	}
	return nil
}

// shorten cuts the (max) values of a row of a result to TEXTSIZE.
func (s *Session) shorten(row Row) Row {
	out := slices.Clone(row)
	for i, c := range s.result {
		if c.Type.Size != sqltype.Max {
			continue
		}
		switch v := row[i].(type) {
		case []byte:
			out[i] = v[:min(len(v), s.set.textSize)]
		case string:
			size := s.set.textSize
			if isNational(c.Type.Kind) {
				size /= 2
			}
			out[i] = cutText(v, c.Type.Kind, size)
		}
	}
	return out
}

// checkFilteredIndex returns error 1934: changes of a table with a filtered index need the ANSI settings.
func (s *Session) checkFilteredIndex(t *table, verb string) error {
	wrong := s.set.options.wrong()
	if len(wrong) == 0 {
		return nil
	}
	for _, ix := range t.indexes {
		if ix.filter != nil {
			return errWrongSet(verb, wrong)
		}
	}
	return nil
}
